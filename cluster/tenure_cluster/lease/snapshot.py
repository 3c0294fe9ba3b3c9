"""A lease table as bytes, and back.

The format is a sequence of MessagePack chunks: a header ``[format, version, counters, rows per
section]``, then chunks ``[section, rows]`` in the order of the sections. Rows are the values of
types.py as arrays. A reader takes rows that are shorter than it knows (missing fields have defaults); a
version that it does not know it refuses.

Dumping lets the table's large dictionaries stand still (see overlay.py) and copies the others at once, which
is consistent because their values are never changed; all is encoded in slices afterwards while the table goes
on changing. Rows stand in the order
of the dictionaries, because some of those orders are state. That order is a function of the applied
commands, so equal histories give equal bytes.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, get_args

import msgspec

from tenure_cluster.lease.audit_trail import AuditChain, AuditRecord, AuditRepeat, same
from tenure_cluster.lease.credentials import Credential
from tenure_cluster.lease.granting import EMPTY_METADATA
from tenure_cluster.lease.indexes import SessionRef, waiter_ref
from tenure_cluster.lease.invariants import check_state
from tenure_cluster.lease.memory import AbandonedRequest, ExpiredSession, Operation
from tenure_cluster.lease.quota import TenantQuota
from tenure_cluster.lease.restoration import Restoration
from tenure_cluster.lease.rules import PRESENT, Rules
from tenure_cluster.lease.step import InvariantBroken
from tenure_cluster.lease.table import LeaseTable
from tenure_cluster.lease.types import EndedLease, KeySet, KeyState, Lease, Record, Session, Tenant, Waiter

FORMAT: Final = "tenure-lease-table"
VERSION: Final = 5
"""2 has sets of keys, 3 credentials and quotas, 4 the audit, 5 rules that were adopted. A table without what
came later is written as one of an earlier version, 2 at least, which nodes of the version before can read as
well."""
FORMAT_RESTORED: Final = "tenure-lease-table-restored"
"""Of a state that was put back to a backup: the header says more. A version that does not know of that must
not go on with such a state, it would count from where the backup did."""


_SECTIONS_OF: Final = {1: 10, 2: 11, 3: 13, 4: 16, 5: 16}
"""How many sections a version has."""

CHUNK_BYTES: Final = 256 * 1024
"""A chunk is closed before it would exceed this, unless it holds a single greater row."""

_ROW_TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    "tenants": Tenant,
    "sessions": Session,
    "leases": Lease,
    "keys": KeyState,
    "waiters": Waiter,
    "records": Record,
    "ended": EndedLease,
    "expired_sessions": ExpiredSession,
    "abandoned": AbandonedRequest,
    "operations": Operation,
    "sets": KeySet,
    "credentials": Credential,
    "quotas": TenantQuota,
    "audit_chain": AuditChain,
    "audit_records": AuditRecord,
    "audit_repeats": AuditRepeat,
}
"""The sections in their order, each with the type of its rows."""


class SnapshotDamaged(Exception):
    """The chunks are not a whole snapshot of a version that is known here; the message says what is wrong."""


class _Header(msgspec.Struct, frozen=True, array_like=True):
    format: str
    version: int
    time_ms: int
    last_ticket: int
    counts: list[int]


class _RestoredHeader(_Header, frozen=True, array_like=True):
    restoration: Restoration | None = None


class _RuledHeader(_RestoredHeader, frozen=True, array_like=True):
    rules: int = 0


_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(_RuledHeader)
_chunk_decoder = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_rows_decoders: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    section: msgspec.msgpack.Decoder(list[row_type])  # type: ignore[valid-type]
    for section, row_type in _ROW_TYPES.items()
}


def dump(table: LeaseTable) -> Iterator[bytes]:
    """The table as it stands at this call, as chunks that are encoded when they are asked for."""
    alone = not table.frozen
    version = _version_of(table)
    rows = {section: table.rows_of(section, freeze=alone) for section in _sections(version)}
    counts = [len(of_section) for of_section in rows.values()]
    known = (version, table.time_ms, table.last_ticket, counts)
    form = FORMAT if table.restoration is None else FORMAT_RESTORED
    header = _Header(form, *known)
    if table.rules:
        header = _RuledHeader(form, *known, table.restoration, table.rules)
    elif table.restoration is not None:
        header = _RestoredHeader(form, *known, table.restoration)
    chunks = _encoded(header, rows)
    return _Dump(table, chunks) if alone else chunks


def _version_of(table: LeaseTable) -> int:
    """The lowest version that can say all of the table, 2 at least."""
    if table.rules:
        return VERSION
    if table.audit_chain:
        return 4
    return 3 if table.credentials or table.quotas else 2


def _sections(version: int) -> list[str]:
    return list(_ROW_TYPES)[: _SECTIONS_OF[version]]


class _Dump(Iterator[bytes]):
    """Chunks of a table that stands still for them, until they are drawn or dropped."""

    def __init__(self, table: LeaseTable, chunks: Iterator[bytes]) -> None:
        self._table: LeaseTable | None = table
        self._chunks = chunks

    def __next__(self) -> bytes:
        chunk = next(self._chunks, None)
        if chunk is None:
            self.close()
            raise StopIteration
        return chunk

    def close(self) -> None:
        if self._table is not None:
            self._table.release()
            self._table = None

    __del__ = close


def _encoded(header: _Header, rows: dict[str, Collection[Any]]) -> Iterator[bytes]:
    yield _encoder.encode(header)
    for section, of_section in rows.items():
        chunk: list[msgspec.Raw] = []
        size = 0
        for row in of_section:
            encoded = _encoder.encode(row)
            if chunk and size + len(encoded) > CHUNK_BYTES:
                yield _encoder.encode((section, chunk))
                chunk, size = [], 0
            chunk.append(msgspec.Raw(encoded))
            size += len(encoded)
        if chunk:
            yield _encoder.encode((section, chunk))


def load(chunks: Iterable[bytes]) -> LeaseTable:
    """The table that was dumped. Raises SnapshotDamaged if the chunks are not one whole snapshot, or if the
    state in them contradicts itself."""
    remaining = iter(chunks)
    try:
        header = _read_header(remaining)
        loader = _Loader(header)
        for chunk in remaining:
            section, raw = _chunk_decoder.decode(chunk)
            if section not in _ROW_TYPES:
                raise SnapshotDamaged(f"unknown section {section!r}")
            loader.add(section, _rows_decoders[section].decode(raw))
    except (msgspec.DecodeError, RecursionError) as error:
        raise SnapshotDamaged(f"a chunk cannot be decoded: {error}") from error
    table = loader.table
    kept = [len(getattr(table, section)) for section in _ROW_TYPES]
    if header.counts != list(loader.counts.values()) or header.counts != kept:
        raise SnapshotDamaged(f"rows are missing or doubled: {loader.counts} instead of {header.counts}")
    try:
        table.rebuild_derived()
        check_state(table)
    except (InvariantBroken, KeyError) as error:
        raise SnapshotDamaged(f"the state contradicts itself: {error}") from error
    return table


def _read_header(chunks: Iterator[bytes]) -> _RuledHeader:
    first = next(chunks, None)
    if first is None:
        raise SnapshotDamaged("there is no header")
    header = _header_decoder.decode(first)
    if header.format != (FORMAT if header.restoration is None else FORMAT_RESTORED):
        raise SnapshotDamaged(f"this is a {header.format!r}, not a {FORMAT!r}")
    if header.version not in _SECTIONS_OF:
        raise SnapshotDamaged(f"version {header.version} is not known here, {VERSION} is")
    if header.rules not in (0, *get_args(Rules)):
        raise SnapshotDamaged(f"its commands follow rules {header.rules}, and {PRESENT} are known here")
    # Sections that came later are empty, and so are fields at the end of a row.
    missing = len(_ROW_TYPES) - _SECTIONS_OF[header.version]
    return msgspec.structs.replace(header, counts=[*header.counts, *[0] * missing])


def time_of(chunk: bytes) -> int:
    """The cluster time of the state that begins with this chunk. Raises SnapshotDamaged."""
    try:
        return _read_header(iter([chunk])).time_ms
    except (msgspec.DecodeError, RecursionError) as error:
        raise SnapshotDamaged(f"the header cannot be decoded: {error}") from error


class _Loader:
    """Fills a table with decoded rows.

    Decoding makes an object of its own for every occurrence of a string or number. A table that has run
    shares them, so they are shared again here: a lease would cost half as much more otherwise.
    """

    def __init__(self, header: _RuledHeader) -> None:
        self.table = LeaseTable()
        self.table.time_ms = header.time_ms
        self.table.last_ticket = header.last_ticket
        self.table.restoration = header.restoration
        self.table.rules = header.rules
        self.counts = dict.fromkeys(_ROW_TYPES, 0)
        """How many rows have been added to each section."""
        self._tenants: dict[str, str] = {}
        self._private_refs: dict[SessionRef, SessionRef] = {}

    def add(self, section: str, rows: list[Any]) -> None:
        """Add rows of one section. Sections come in the order in which they were dumped."""
        self.counts[section] += len(rows)
        if "tenant" in _ROW_TYPES[section].__struct_fields__:
            for row in rows:
                _share(row, "tenant", self._tenants.setdefault(row.tenant, row.tenant))
        getattr(self, f"_add_{section}")(rows)

    def _add_tenants(self, rows: list[Tenant]) -> None:
        self.table.tenants.update((tenant.tenant, tenant) for tenant in rows)

    def _add_sessions(self, rows: list[Session]) -> None:
        for session in rows:
            ref = (session.tenant, session.session_id)
            if session.private:
                self._private_refs[ref] = ref
            if session.renewed_wall_ms == session.opened_wall_ms:
                _share(session, "renewed_wall_ms", session.opened_wall_ms)
            _share(session, "ttl_ms", self.table.shared_ttl(session.ttl_ms))
            _share(session, "owner", self.table.shared_owner(session.owner))
            _share_empty_metadata(session)
            self.table.sessions[ref] = session

    def _add_leases(self, rows: list[Lease]) -> None:
        for lease in rows:
            ref = (lease.tenant, lease.lease_id)
            ref = self._private_refs.get(ref, ref)
            session = self.table.sessions.get((lease.tenant, lease.session_id))
            if session is not None:
                _share(lease, "session_id", session.session_id)
                if lease.owner == session.owner:
                    _share(lease, "owner", session.owner)
                if lease.granted_wall_ms == session.opened_wall_ms:
                    _share(lease, "granted_wall_ms", session.opened_wall_ms)
            _share(lease, "lease_id", ref[1])
            _share_empty_metadata(lease)
            self.table.leases[ref] = lease

    def _add_keys(self, rows: list[KeyState]) -> None:
        for state in rows:
            for guard in state.guards.values():
                lease = self.table.leases.get((state.tenant, guard.lease_id))
                if lease is not None:
                    _share(guard, "lease_id", lease.lease_id)
                    if guard.owner == lease.owner:
                        _share(guard, "owner", lease.owner)
        self.table.keys.update(((state.tenant, state.key), state) for state in rows)

    def _add_waiters(self, rows: list[Waiter]) -> None:
        for waiter in rows:
            _share_empty_metadata(waiter)
            self.table.waiters[waiter_ref(waiter)] = waiter

    def _add_records(self, rows: list[Record]) -> None:
        self.table.records.update(((record.tenant, record.key), record) for record in rows)

    def _add_sets(self, rows: list[KeySet]) -> None:
        for key_set in rows:
            self.table.sets[(key_set.tenant, key_set.scope, key_set.request_id)] = key_set

    def _add_credentials(self, rows: list[Credential]) -> None:
        self.table.credentials.update((credential.credential_id, credential) for credential in rows)

    def _add_quotas(self, rows: list[TenantQuota]) -> None:
        self.table.quotas.update((row.tenant, row) for row in rows)

    def _add_audit_chain(self, rows: list[AuditChain]) -> None:
        self.table.audit_chain.update(enumerate(rows))

    def _add_audit_records(self, rows: list[AuditRecord]) -> None:
        self.table.audit_records.update((record.seq, record) for record in rows)

    def _add_audit_repeats(self, rows: list[AuditRepeat]) -> None:
        self.table.audit_repeats.update((same(repeat.note), repeat) for repeat in rows)

    def _add_ended(self, rows: list[EndedLease]) -> None:
        for ended in rows:
            self.table.ended.remember((ended.tenant, ended.lease_id), ended)

    def _add_expired_sessions(self, rows: list[ExpiredSession]) -> None:
        for expired in rows:
            self.table.expired_sessions.remember((expired.tenant, expired.session_id), expired)

    def _add_abandoned(self, rows: list[AbandonedRequest]) -> None:
        for abandoned in rows:
            ref = (abandoned.tenant, abandoned.scope, abandoned.request_id)
            self.table.abandoned.remember(ref, abandoned)

    def _add_operations(self, rows: list[Operation]) -> None:
        for operation in rows:
            ref = (operation.tenant, operation.key, operation.op_id)
            self.table.operations.remember(ref, operation)


_share = msgspec.structs.force_setattr
"""Puts an equal object in place of a field of a value that nobody else has seen yet."""


def _share_empty_metadata(row: Session | Lease | Waiter) -> None:
    if not row.metadata:
        _share(row, "metadata", EMPTY_METADATA)


def digest(table: LeaseTable) -> str:
    """SHA-256 of the content in hexadecimal, the same for equal tables whatever the order of their
    dictionaries.

    Of each section goes in the sum of its rows' hashes: it does not depend on their order, and nothing
    has to be sorted. It tells replicas apart that went different ways; it is no defence against
    somebody who chooses the content."""
    version = _version_of(table)
    sha = hashlib.sha256(_encoder.encode((FORMAT, version, table.time_ms, table.last_ticket)))
    if table.restoration is not None:
        sha.update(_encoder.encode(table.restoration))
    if table.rules:
        sha.update(_encoder.encode(("rules", table.rules)))
    for section in _sections(version):
        rows = getattr(table, section).values()
        total = sum(int.from_bytes(hashlib.sha256(_encoder.encode(row)).digest()) for row in rows)
        sha.update(_encoder.encode((section, len(rows), (total % 2**256).to_bytes(32))))
    return sha.hexdigest()
