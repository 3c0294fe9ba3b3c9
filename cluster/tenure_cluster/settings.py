"""What can be set: every field documented with its unit and what it must relate to.

Frozen. How a configuration is read from a file and from variables stands in config.py, the checks in
settings_checks.py.
"""

from pathlib import Path
from typing import Literal

import msgspec

from tenure_cluster.raft.types import RaftOptions
from tenure_cluster.settings_checks import faults_of


class ConfigError(Exception):
    """The configuration can't be used; the message is one line that names the setting and the fault."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class Http(_Section, frozen=True, kw_only=True):
    """[http]: the public front."""

    listen: str = "127.0.0.1:7601"
    """host:port to serve on. Anything but loopback needs [tls] with auth.required or tls.client_ca, or
    insecure = true."""
    advertise: str = ""
    """URL that clients are told, https with [tls]; by default the node's own in [members], else made from
    `listen`."""
    body_bytes_max: int = 262_144
    """Largest request body."""
    connections_max: int = 12_000
    """Open client connections. One more takes the place of a stranger's or of an idle one; if there is
    neither it is served one request that is short, as a probe's is. Where callers show credentials one tenant
    has at most three quarters. Below the process's limit of open files."""
    hosts: str = ""
    """Names with a dot in them, with blanks between, by which a node that listens on loopback without TLS and
    credentials may be asked, beside those of [members]; others are refused, since a page in a browser could
    have made them point here."""
    read_timeout_ms: int = 10_000
    """Time in which a request that has begun must have arrived completely."""
    idle_timeout_ms: int = 75_000
    """Time after which a connection without a request is closed. Above the longest poll (25 s)."""
    stream_frame_bytes_max: int = 1_048_576
    """Largest frame that a client may send on a stream. At least body_bytes_max: any one operation fits."""
    stream_in_flight_max: int = 4_096
    """Operations of one stream that may be under way; beyond it nothing more is read from its connection
    until some are answered. Waiting acquires are not counted."""


class Peer(_Section, frozen=True, kw_only=True):
    """[peer]: the links between the nodes."""

    listen: str = "127.0.0.1:7701"
    """host:port to serve the other members on. Anything but loopback needs [tls], or insecure = true."""
    advertise: str = ""
    """host:port that the others dial; by default the node's own in [members], else `listen`."""


class Tls(_Section, frozen=True, kw_only=True):
    """[tls]: certificates, all files in PEM, relative to the configuration file. cert, key and ca are given
    together, and then clients are served by https and peers must prove who they are. All are read again when
    they change."""

    cert: str = ""
    """The node's certificate, behind it those between it and the authority. Its DNS names have node_id."""
    key: str = ""
    """The certificate's private key, not encrypted."""
    ca: str = ""
    """The cluster's authority, or several while one follows another: only nodes whose certificate is of it
    are peers."""
    client_ca: str = ""
    """The authority of the clients: only clients that show a certificate of it are served. Without it, every
    client is."""
    reload_ms: int = 5_000
    """How often the files are looked at; a change is taken up when it has stood for that long."""

    @property
    def on(self) -> bool:
        """Whether the node uses TLS."""
        return bool(self.cert)


class Auth(_Section, frozen=True, kw_only=True):
    """[auth]: who may ask for what."""

    required: bool = False
    """Whether clients must show a credential. While none has the right `admin`, the leader makes one and
    writes it to `administrator.credential` in its data_dir. Without it every caller has all rights."""


class Jwt(_Section, frozen=True, kw_only=True):
    """[jwt]: tokens of an issuer that are let in beside credentials, where auth.required is set. Needs
    `tenure[jwt]`. issuer, audience and keys are given together."""

    issuer: str = ""
    """Whose tokens are let in: their claim `iss`. Empty: none are."""
    audience: str = ""
    """What must be among their claim `aud`: name this cluster, or other services could use what they are
    shown."""
    keys: str = ""
    """File with the issuer's public keys, a JSON Web Key Set or PEM, relative to the configuration file; read
    again when it changes."""
    algorithms: str = "ES256 RS256 EdDSA"
    """Algorithms of signatures that are taken, with blanks between them: of RS256, RS384, RS512, PS256,
    PS384, PS512, ES256, ES384, ES512, EdDSA."""
    tenant_claim: str = "tenant"
    """The claim that names the tenant. A token without it is refused."""
    rights_claim: str = "rights"
    """The claim that has the rights, a list or a text with blanks between them; what is no right is
    ignored."""
    prefixes_claim: str = ""
    """The claim that has the beginnings of keys, likewise; a token without it is then refused. Empty: all
    keys of the tenant."""
    leeway_ms: int = 30_000
    """For how long a token is taken after its end and before its beginning, because clocks differ. At most
    300,000."""


class Member(_Section, frozen=True, kw_only=True):
    """[members.ID]: one node of the cluster as the others and the clients reach it."""

    peer: str
    """host:port of its peer links."""
    http: str
    """URL of its front."""


class Leases(_Section, frozen=True, kw_only=True):
    """[leases]: what may be asked for."""

    ttl_min_ms: int = 3_000
    """Shortest TTL. At least 1,000 and at least 3 x raft.election_timeout_max_ms."""
    ttl_max_ms: int = 86_400_000
    """Longest TTL. At least ttl_min_ms."""


class Calls(_Section, frozen=True, kw_only=True):
    """[calls]: how long a node tries to have one call answered."""

    timeout_ms: int = 5_000
    """Time for one call, beyond what it asked to wait. Then it is answered `outcome_unknown`."""
    leader_wait_ms: int = 2_000
    """Time a call waits for a known leader before it is refused with `no_leader`. At most timeout_ms."""
    leader_waiters_max: int = 2_000
    """Calls that may so wait at once; the next is refused at once."""


class Admission(_Section, frozen=True, kw_only=True):
    """[admission]: what a leader takes in before it sheds load, acquires first and renewals last."""

    pending_max: int = 10_000
    """Operations proposed and not yet answered. At most raft.queue_max."""
    polls_max: int = 50_000
    """Waiting acquires connected to this node's leadership at once."""
    disk_reserve_bytes: int = 64 << 20
    """Free space below which acquires are refused, below half of it guarded writes as well; renewals and
    releases go on. At least 2 x raft.journal_segment_bytes."""


class Quotas(_Section, frozen=True, kw_only=True):
    """[quotas]: what each tenant may have that has no quota of its own; 0 is no bound. Renewals and releases
    are never refused for it. All nodes should have the same: the leader's count, and for watches the node's
    that they are opened on."""

    leases_max: int = 0
    """Leases. An acquire that waits is let in as a waiter, and counts as a lease only when it is granted."""
    sessions_max: int = 0
    """Sessions that were opened as such."""
    waiters_max: int = 0
    """Acquires that wait; a set is one for each of its keys."""
    watches_max: int = 0
    """Watches open on one node."""
    records_max: int = 0
    """Records."""
    record_bytes_max: int = 0
    """Bytes of all records' values together."""
    operations_per_s: int = 0
    """Operations a second, with a burst of two seconds; renewals, releases and what else gives something up
    are not counted, and stale reads by the node that answers them."""
    ttl_min_ms: int = 0
    """Shortest TTL, beside leases.ttl_min_ms."""
    ttl_max_ms: int = 0
    """Longest TTL, beside leases.ttl_max_ms. At least ttl_min_ms, or 0."""


class Audit(_Section, frozen=True, kw_only=True):
    """[audit]: how much is kept of who did what: refused calls, broken leases, refused commits, changes of
    credentials and quotas. The leader's counts, so all nodes should have the same."""

    records_max: int = 10_000
    """Records kept; the oldest go first. 0: nothing is recorded. About 500 bytes of memory each, at most
    100,000."""
    keep_ms: int = 30 * 86_400_000
    """How long a record is kept, in cluster time: it stands still while no node leads. At least a minute."""


class Watch(_Section, frozen=True, kw_only=True):
    """[watch]: who follows what happens, and how far back a node remembers it."""

    history_events: int = 50_000
    """Events kept in memory, from which a watch can be resumed; about 300 bytes each. At least 1,000."""
    watchers_max: int = 10_000
    """Watches open on this node at once; one more is refused. Each of GET /v1/events is a connection as well,
    so below http.connections_max."""


class Metrics(_Section, frozen=True, kw_only=True):
    """[metrics]: what is counted for Prometheus, at /metrics of the front."""

    enabled: bool = True
    """Whether anything is counted and /metrics is served."""
    tenants_max: int = 50
    """Tenants that have series of their own; all others share those of `other`."""
    open: bool = False
    """Whether /metrics is served without a credential where auth.required asks for one; else it needs the
    right `admin`."""


class Tracing(_Section, frozen=True, kw_only=True):
    """[tracing]: spans of requests for OpenTelemetry. Needs `tenure[otel]`."""

    enabled: bool = False
    """Whether requests are traced."""
    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    """URL of the collector, which takes OTLP over HTTP."""
    sample_percent: int = 100
    """How many of a hundred requests without a `traceparent` are traced; one that has it follows its flag."""
    timeout_ms: int = 5_000
    """How long sending a batch of spans may take. What can't be sent is lost; no request waits for it."""


class Log(_Section, frozen=True, kw_only=True):
    """[log]: what the node says about itself on its standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""
    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""
    requests: Literal["none", "failed", "all"] = "failed"
    """Which requests have a line: those answered with 5xx, at most ten a second, or all, or none."""


class Config(_Section, frozen=True, kw_only=True):
    """One node's whole configuration."""

    cluster_id: str
    """Name of the cluster, 1 to 64 letters, digits, `-`, `_`, `.`; none talks to another cluster's."""
    node_id: str
    """Name of this node, formed likewise; it is kept in the data directory, where another's is refused."""
    data_dir: Path = Path("data")
    """Directory of journal and snapshots; relative to the configuration file. One process at a time."""
    durability: Literal["fsync", "os"] = "fsync"
    """fsync: what is acknowledged is on the disk. os: perhaps not yet, and a power loss may lose it."""
    insecure: bool = False
    """Allows listening on other addresses than loopback although strangers there could have all rights:
    `--insecure` of `tenured run`."""
    join: bool = False
    """At its first start the node joins a cluster that runs: members names that cluster's members and this
    node, which takes part once `tenure members add` has made it a member. Later starts ignore it."""
    http: Http = Http()
    peer: Peer = Peer()
    tls: Tls = Tls()
    auth: Auth = Auth()
    jwt: Jwt = Jwt()
    members: dict[str, Member] = {}
    """All nodes of the cluster with this one. Without any, the node is a cluster of one."""
    raft: RaftOptions = RaftOptions()
    """[raft]: see tenure_cluster.raft.types.RaftOptions."""
    leases: Leases = Leases()
    calls: Calls = Calls()
    admission: Admission = Admission()
    quotas: Quotas = Quotas()
    audit: Audit = Audit()
    watch: Watch = Watch()
    metrics: Metrics = Metrics()
    tracing: Tracing = Tracing()
    log: Log = Log()

    def validate(self) -> None:
        """Check every relation between settings. Raises ConfigError that names each fault with its
        numbers.
        """
        if faults := faults_of(self):
            raise ConfigError("; ".join(faults))
