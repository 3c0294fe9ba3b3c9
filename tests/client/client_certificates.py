"""Certificates for servers and clients of a test, made anew each time."""

import ssl
from pathlib import Path

import trustme


class Certificates:
    """An authority of its own, a server's certificate, a client's, and a stranger's."""

    def __init__(self, directory: Path) -> None:
        authority, stranger = trustme.CA(), trustme.CA()
        self.ca_file = directory / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        self.strange_ca_file = directory / "strange.pem"
        stranger.cert_pem.write_to_path(str(self.strange_ca_file))
        ours = authority.issue_cert("agent@client")
        self.cert_file, self.key_file = directory / "cert.pem", directory / "key.pem"
        ours.private_key_pem.write_to_path(str(self.key_file))
        for number, blob in enumerate(ours.cert_chain_pems):
            blob.write_to_path(str(self.cert_file), append=number > 0)
        self.server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(self.server)
        self.server_that_asks = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(self.server_that_asks)
        authority.configure_trust(self.server_that_asks)
        self.server_that_asks.verify_mode = ssl.CERT_REQUIRED
