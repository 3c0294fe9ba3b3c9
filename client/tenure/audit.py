"""The audit's chain, verified: by whoever has records, from a cluster or from a file of JSON lines.

    from tenure.audit import verify, verify_lines

    page = await client.audit()
    end = verify(page.records)
    end = verify_lines(open("audit.jsonl"))

Each record has ``prev``, the hash of the one before, and ``hash``, the SHA-256 of everything in it but
``hash`` and ``at``, as JSON in the order of the names, without blanks. So none can be changed, left out or
put in without all behind it being others. What is behind the last one is proven by the cluster's head:
keep the ``hash`` of the last record that you exported, and have the next export begin from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tenure.errors import TenureError


class AuditBroken(TenureError):
    """Records do not follow one another. ``seq`` is the number of the first that does not fit."""

    def __init__(self, seq: int, detail: str) -> None:
        super().__init__(code="audit_broken", detail=detail)
        self.seq = seq


class End(NamedTuple):
    """The last record of a part that was verified; ``seq`` 0 and no hash if there was none."""

    seq: int
    hash: str


def hash_of(record: Mapping[str, Any]) -> str:
    """The hash that a record must have, from everything else in it."""
    content = {name: value for name, value in record.items() if name not in ("at", "hash")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def verify(records: Iterable[Mapping[str, Any]], after: End | None = None) -> End:
    """Verify that records follow one another, and ``after`` if it is given. Returns their end. Raises
    AuditBroken at the first that does not fit."""
    end = after
    for record in records:
        seq, prev = record.get("seq"), record.get("prev")
        if not isinstance(seq, int):
            raise AuditBroken(end.seq + 1 if end else 0, "what should be a record has no number")
        if end is not None and seq != end.seq + 1:
            raise AuditBroken(seq, f"record {seq} comes behind {end.seq}: what was between is missing")
        if end is not None and end.hash and prev != end.hash:
            raise AuditBroken(seq, f"record {seq} does not continue the chain: another one was before it")
        if hash_of(record) != record.get("hash"):
            raise AuditBroken(seq, f"record {seq} is not what was recorded: its content has another hash")
        end = End(seq, str(record["hash"]))
    return end if end is not None else End(0, "")


def verify_lines(lines: Iterable[str | bytes], after: End | None = None) -> End:
    """`verify` for an export, one record a line as ``tenure audit -o json`` writes it. Raises AuditBroken,
    which names the line as well."""
    end = after
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise AuditBroken(
                end.seq + 1 if end else 0, f"line {number} is no record: it is not a JSON object"
            )
        try:
            end = verify([record], end)
        except AuditBroken as broken:
            raise AuditBroken(broken.seq, f"line {number}: {broken.detail}") from None
    return end if end is not None else End(0, "")
