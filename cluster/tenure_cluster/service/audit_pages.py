"""Pages of the audit, for who reads it."""

from tenure_cluster.lease.audit_trail import AuditRecord, AuditTrail
from tenure_cluster.service.audit_messages import AuditRecordBody, AuditReply, ListAuditRequest
from tenure_cluster.service.times import rfc3339


def page(trail: AuditTrail, request: ListAuditRequest) -> AuditReply:
    """One page of the records that are kept. Costs what it shows."""
    chain = trail.present
    first = chain.last_seq - len(trail.records) + 1
    begin = max(request.after + 1, first)
    end = min(begin + request.limit, chain.last_seq + 1)
    before = trail.records.get(begin - 1)
    prev = before.hash if before is not None else chain.base if begin == first else chain.head
    shown: list[AuditRecordBody] = []
    for seq in range(begin, end):
        record = trail.records[seq]
        shown.append(_body(record, prev))
        prev = record.hash
    return AuditReply(
        records=shown,
        next=end - 1 if end <= chain.last_seq else None,
        first_seq=first,
        head_seq=chain.last_seq,
        head=chain.head.hex(),
        recording=trail.on,
    )


def _body(record: AuditRecord, prev: bytes) -> AuditRecordBody:
    return AuditRecordBody(
        seq=record.seq,
        at=rfc3339(record.wall_ms),
        kind=record.kind,
        tenant=record.tenant,
        actor=record.actor,
        origin=record.origin,
        key=record.key,
        token=record.token,
        owner=record.owner,
        subject=record.subject,
        code=record.code,
        detail=record.detail,
        count=record.count,
        at_ms=record.at_ms,
        wall_ms=record.wall_ms,
        prev=prev.hex(),
        hash=record.hash.hex(),
    )
