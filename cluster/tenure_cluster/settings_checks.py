"""What settings must fulfil, alone and in relation to one another."""

from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict

from tenure_cluster.addresses import is_http_url, is_loopback, split_address
from tenure_cluster.lease import limits

if TYPE_CHECKING:
    from tenure_cluster.settings import Config

TTL_FLOOR_MS: Final = 1_000
"""No configuration may allow a shorter TTL: three ticks and a renewal's round trips would not fit into it."""

ELECTIONS_PER_TTL_MIN: Final = 3
"""The shortest TTL holds this many of the longest election timeout: a change of leader ends no lease."""

HEARTBEATS_PER_ELECTION_MIN: Final = 4
"""The shortest election timeout holds this many heartbeats: one late heartbeat deposes nobody."""

MS_MAX: Final = 2**53 - 1
"""Greatest duration that goes into commands: it can be encoded, and so can any sum with a time."""

PERCENT_MAX: Final = 100

JWT_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Those by which whoever can verify a token can't sign one."""


def faults_of(config: "Config") -> list[str]:
    """Each fault with its setting and its numbers."""
    return [
        *_name_faults(config),
        *_address_faults(config),
        *_tls_faults(config),
        *_jwt_faults(config),
        *_tracing_faults(config),
        *_relation_faults(config),
    ]


def _name_faults(config: "Config") -> list[str]:
    faults = []
    names = {"cluster_id": config.cluster_id, "node_id": config.node_id}
    for setting, name in [*names.items(), *((f"members.{name}", name) for name in config.members)]:
        plain = name.replace("-", "").replace("_", "").replace(".", "")
        if not (0 < len(name) <= 64 and name.isascii() and plain.isalnum()):
            faults.append(f"{setting} = {name!r} must be 1 to 64 letters, digits, '-', '_' or '.'")
    if config.node_id not in config.members:
        faults.append(f"node_id = {config.node_id!r} is not among the members {sorted(config.members)}")
    return faults


def _address_faults(config: "Config") -> list[str]:
    faults = []
    addresses = {"http.listen": config.http.listen, "peer.listen": config.peer.listen}
    addresses["peer.advertise"] = config.peer.advertise
    addresses.update({f"members.{name}.peer": member.peer for name, member in config.members.items()})
    for setting, address in addresses.items():
        try:
            host, _ = split_address(address)
        except ValueError as error:
            faults.append(f"{setting}: {error}")
            continue
        if setting.endswith(".listen") and not config.insecure and not is_loopback(host):
            faults += _exposure_faults(config, setting, address)
    faults += [
        f"http.hosts: {name!r} is not an http URL, nor a name"
        for name in config.http.hosts.split()
        if "://" in name and not is_http_url(name)
    ]
    urls = {f"members.{name}.http": member.http for name, member in config.members.items()}
    for setting, url in {"http.advertise": config.http.advertise, **urls}.items():
        if not is_http_url(url):
            faults.append(f"{setting} = {url!r} is not an http URL")
    own = config.members.get(config.node_id)
    if own is not None:
        for setting, said, listed in (
            ("http", config.http.advertise, own.http.rstrip("/")),
            ("peer", config.peer.advertise, own.peer),
        ):
            if said != listed:
                faults.append(
                    f"{setting}.advertise = {said!r} is not what members.{config.node_id} says, {listed!r}"
                )
    peers = [member.peer for member in config.members.values()]
    faults += [
        f"two members have the peer address {peer}"
        for peer in sorted({p for p in peers if peers.count(p) > 1})
    ]
    return faults


def _exposure_faults(config: "Config", setting: str, address: str) -> list[str]:
    """What is missing for this address, which others than this machine can reach."""
    if setting == "peer.listen" and not config.tls.on:
        wanted = "whoever reaches it could pass for a peer: set tls.cert, tls.key and tls.ca"
    elif setting == "http.listen" and not (config.tls.on and (config.tls.client_ca or config.auth.required)):
        if config.auth.required:
            wanted = "credentials could be overheard: set tls.cert, tls.key and tls.ca"
        else:
            wanted = (
                "every caller has all rights: set auth.required"
                f"{'' if config.tls.on else ' with tls.cert, tls.key and tls.ca'}; or set "
                f"{'tls.client_ca' if config.tls.on else 'tls.cert, tls.key, tls.ca and tls.client_ca'}"
            )
    else:
        return []
    return [
        f"{setting} = {address!r} is not loopback, and {wanted}, or set insecure = true "
        "(tenured run --insecure) to allow it all the same"
    ]


def _tls_faults(config: "Config") -> list[str]:
    tls = config.tls
    given = {"tls.cert": tls.cert, "tls.key": tls.key, "tls.ca": tls.ca}
    missing = [name for name, value in given.items() if not value]
    if missing and (len(missing) < len(given) or tls.client_ca):
        return [f"{', '.join(missing)} must be set: cert, key and ca of [tls] go together"]
    own = config.members.get(config.node_id)
    if tls.on and own is not None and not own.http.startswith("https:"):
        return [f"members.{config.node_id}.http = {own.http!r} must be an https URL: this node has [tls]"]
    return []


def _tracing_faults(config: "Config") -> list[str]:
    tracing = config.tracing
    if not is_http_url(tracing.endpoint):
        return [f"tracing.endpoint = {tracing.endpoint!r} is not an http URL"]
    if tracing.sample_percent > PERCENT_MAX:
        return [f"tracing.sample_percent = {tracing.sample_percent} is above {PERCENT_MAX}"]
    return []


def _jwt_faults(config: "Config") -> list[str]:
    jwt = config.jwt
    given = {"jwt.issuer": jwt.issuer, "jwt.audience": jwt.audience, "jwt.keys": jwt.keys}
    missing = [name for name, value in given.items() if not value]
    if len(missing) == len(given):
        return []
    if missing:
        return [f"{', '.join(missing)} must be set: issuer, audience and keys of [jwt] go together"]
    faults = []
    if not config.auth.required:
        faults.append("jwt.issuer is set and auth.required is not: nobody would be asked for a token")
    unknown = sorted(set(jwt.algorithms.split()) - JWT_ALGORITHMS)
    if unknown or not jwt.algorithms.split():
        faults.append(
            f"jwt.algorithms = {jwt.algorithms!r} must be some of {', '.join(sorted(JWT_ALGORITHMS))}"
        )
    if not jwt.tenant_claim or not jwt.rights_claim:
        faults.append("jwt.tenant_claim and jwt.rights_claim must not be empty")
    return faults


def _relation_faults(config: "Config") -> list[str]:
    raft, leases = config.raft, config.leases
    elections = ELECTIONS_PER_TTL_MIN * raft.election_timeout_max_ms
    heartbeats = HEARTBEATS_PER_ELECTION_MIN * raft.heartbeat_ms
    segments = 2 * raft.journal_segment_bytes
    at_least: list[tuple[str, int, str, int]] = [
        ("raft.heartbeat_ms", raft.heartbeat_ms, "the least possible", 1),
        ("raft.election_timeout_min_ms", raft.election_timeout_min_ms, "4 x raft.heartbeat_ms", heartbeats),
        (
            "raft.election_timeout_max_ms",
            raft.election_timeout_max_ms,
            "raft.election_timeout_min_ms + 1",
            raft.election_timeout_min_ms + 1,
        ),
        ("raft.snapshot_entries", raft.snapshot_entries, "the least possible", 1),
        ("raft.entry_commands_max", raft.entry_commands_max, "the least possible", 1),
        ("raft.snapshot_bytes", raft.snapshot_bytes, "the least possible", 1),
        (
            "raft.entry_bytes_max",
            raft.entry_bytes_max,
            "2 x the largest record value",
            2 * limits.VALUE_BYTES_MAX,
        ),
        ("raft.queue_max", raft.queue_max, "admission.pending_max", config.admission.pending_max),
        ("raft.journal_segment_bytes", raft.journal_segment_bytes, "the least possible", 65_536),
        (
            "raft.transfer_window_bytes",
            raft.transfer_window_bytes,
            "raft.entry_bytes_max",
            raft.entry_bytes_max,
        ),
        ("raft.frame_bytes_max", raft.frame_bytes_max, "2 x raft.entry_bytes_max", 2 * raft.entry_bytes_max),
        ("leases.ttl_min_ms", leases.ttl_min_ms, "the shortest TTL of any configuration", TTL_FLOOR_MS),
        ("leases.ttl_min_ms", leases.ttl_min_ms, "3 x raft.election_timeout_max_ms", elections),
        ("leases.ttl_max_ms", leases.ttl_max_ms, "leases.ttl_min_ms", leases.ttl_min_ms),
        ("http.body_bytes_max", config.http.body_bytes_max, "the least possible", 1_024),
        ("http.connections_max", config.http.connections_max, "the least possible", 1),
        ("http.read_timeout_ms", config.http.read_timeout_ms, "the least possible", 100),
        ("http.idle_timeout_ms", config.http.idle_timeout_ms, "the least possible", 100),
        (
            "http.stream_frame_bytes_max",
            config.http.stream_frame_bytes_max,
            "http.body_bytes_max",
            config.http.body_bytes_max,
        ),
        ("http.stream_in_flight_max", config.http.stream_in_flight_max, "the least possible", 1),
        *((f"quotas.{name}", value, "none", 0) for name, value in asdict(config.quotas).items()),
        *(
            [("quotas.ttl_max_ms", config.quotas.ttl_max_ms, "quotas.ttl_min_ms", config.quotas.ttl_min_ms)]
            if config.quotas.ttl_max_ms
            else []
        ),
        ("tls.reload_ms", config.tls.reload_ms, "the least possible", 100),
        ("calls.leader_wait_ms", config.calls.leader_wait_ms, "the least possible", 0),
        ("calls.leader_waiters_max", config.calls.leader_waiters_max, "the least possible", 0),
        ("calls.timeout_ms", config.calls.timeout_ms, "calls.leader_wait_ms", config.calls.leader_wait_ms),
        ("calls.timeout_ms", config.calls.timeout_ms, "the least possible", 100),
        ("admission.pending_max", config.admission.pending_max, "the least possible", 10),
        ("admission.polls_max", config.admission.polls_max, "the least possible", 1),
        ("jwt.leeway_ms", config.jwt.leeway_ms, "none", 0),
        ("audit.records_max", config.audit.records_max, "none", 0),
        ("audit.keep_ms", config.audit.keep_ms, "the least possible", 60_000),
        ("watch.history_events", config.watch.history_events, "the least possible", 1_000),
        ("metrics.tenants_max", config.metrics.tenants_max, "the least possible", 0),
        ("tracing.sample_percent", config.tracing.sample_percent, "none", 0),
        ("tracing.timeout_ms", config.tracing.timeout_ms, "the least possible", 100),
        ("watch.watchers_max", config.watch.watchers_max, "the least possible", 0),
        (
            "admission.disk_reserve_bytes",
            config.admission.disk_reserve_bytes,
            "2 x raft.journal_segment_bytes",
            segments,
        ),
    ]
    at_most: list[tuple[str, int, int]] = [
        ("jwt.leeway_ms", config.jwt.leeway_ms, 300_000),
        ("audit.records_max", config.audit.records_max, limits.AUDIT_RECORDS_MAX),
        ("audit.keep_ms", config.audit.keep_ms, MS_MAX),
        ("leases.ttl_max_ms", leases.ttl_max_ms, MS_MAX),
    ]
    return [
        *(
            f"{name} = {value} is below {bound} ({least})"
            for name, value, least, bound in at_least
            if value < bound
        ),
        *(
            f"{name} = {value} is above {bound} (the most possible)"
            for name, value, bound in at_most
            if value > bound
        ),
    ]
