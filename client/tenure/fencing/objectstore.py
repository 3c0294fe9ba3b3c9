"""Guards in an object store with conditional writes (the S3 protocol).

    guard = ObjectGuard(boto3.client("s3"), "bucket")
    guard.arm("reports/7.json", held.token)
    guard.write("reports/7.json", held.token, b"…", mode="once")
    guard.read("reports/7.json")

Theory of operation. An object's ETag depends on its content alone, so a condition on it can't protect
anything that is kept elsewhere, in metadata or in another object. Therefore the object of that name is a
small pointer in JSON: the fence, and the name of the object that holds the value. A write puts the value
under a name of its own (``NAME.tenure/…``), and then replaces the pointer under the condition that the one it
has read is still there (``If-Match``; ``If-None-Match: *`` where there was none). If it isn't, somebody has
written or armed meanwhile, and it reads and decides again. Each pointer carries a mark of its own: no two
have the same ETag, and one that was sent twice, because its answer was lost, recognizes itself.

The value before is deleted after the pointer was replaced; a reader that is overtaken by that reads again. A
process that dies in between leaves a value behind that nothing points to.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from tenure.errors import CommitRefused, InvalidRequest, OutcomeUnknown
from tenure.fencing._rules import Fence, Mode, checked

ATTEMPTS_MAX: Final = 50
"""How often a change that others were faster than is decided anew, and a read that was overtaken is made."""

_CONFLICTS: Final = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_ABSENT: Final = {"NoSuchKey", "404", "NotFound"}
_FORMAT: Final = 1


_NOTHING: Final = Fence()


@dataclass(frozen=True, slots=True)
class _Pointer:
    fence: Fence = _NOTHING
    value: str = ""
    """Name of the object that holds the value; empty if there is none."""
    mark: str = ""
    etag: str | None = None
    """Of the pointer as it was found; None if there was none."""


class ObjectGuard:
    """The guarded objects of one bucket. ``client`` is an S3 client of boto3, or one like it."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def arm(self, key: str, token: int) -> None:
        """Raise the object's floor to ``token``: no older token writes it any more. Raises CommitRefused if a
        newer one has been here; OutcomeUnknown if others kept being faster."""
        checked(token)
        self._change(key, lambda found: (found.fence.armed(token), found.value))

    def write(
        self,
        key: str,
        token: int,
        body: bytes,
        *,
        mode: Mode = "current",
        seq: int | None = None,
        **more: Any,
    ) -> None:
        """Replace the value if the write is accepted. ``more`` goes to ``put_object`` (``ContentType`` …).
        Raises CommitRefused: the value is as it was. OutcomeUnknown if others kept being faster."""
        number = checked(token, mode, seq)
        self._find(key).fence.written(token, mode, number)  # a refusal costs no upload
        value = f"{key}.tenure/{token}-{secrets.token_hex(8)}"
        self._client.put_object(Bucket=self._bucket, Key=value, Body=body, **more)
        try:
            before = self._change(key, lambda found: (found.fence.written(token, mode, number), value))
        except CommitRefused:
            self._delete(value)
            raise
        if before:
            self._delete(before)

    def read(self, key: str) -> bytes | None:
        """The value that was last accepted, or None."""
        for _ in range(ATTEMPTS_MAX):
            pointer = self._find(key)
            if not pointer.value:
                return None
            try:
                got = self._client.get_object(Bucket=self._bucket, Key=pointer.value)
            except Exception as error:
                if _code(error) not in _ABSENT:
                    raise
                continue
            body: bytes = got["Body"].read()
            return body
        raise OutcomeUnknown(detail=f"{key!r} was replaced {ATTEMPTS_MAX} times while it was read")

    def fence(self, key: str) -> Fence:
        """What is remembered of the object."""
        return self._find(key).fence

    def _change(self, key: str, change: Callable[[_Pointer], tuple[Fence, str]]) -> str:
        """Replace the pointer; returns what it pointed to if that is not in use any more."""
        mark = secrets.token_hex(8)
        before = ""
        for _ in range(ATTEMPTS_MAX):
            found = self._find(key)
            if found.mark == mark:
                return before
            fence, value = change(found)
            before = found.value if found.value != value else ""
            condition = {"IfNoneMatch": "*"} if found.etag is None else {"IfMatch": found.etag}
            try:
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=json.dumps(
                        {"tenure": _FORMAT, **asdict(fence), "value": value, "mark": mark}
                    ).encode(),
                    ContentType="application/json",
                    **condition,
                )
            except Exception as error:
                if _code(error) not in _CONFLICTS:
                    raise
                continue
            return before
        raise OutcomeUnknown(detail=f"{key!r} was changed by others {ATTEMPTS_MAX} times in a row")

    def _find(self, key: str) -> _Pointer:
        try:
            got = self._client.get_object(Bucket=self._bucket, Key=key)
        except Exception as error:
            if _code(error) not in _ABSENT:
                raise
            return _Pointer()
        try:
            kept = json.loads(got["Body"].read())
            if kept.pop("tenure") != _FORMAT:
                raise ValueError
            value, mark = str(kept.pop("value")), str(kept.pop("mark"))
            return _Pointer(Fence(**kept), value, mark, str(got["ETag"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidRequest(detail=f"the object {key!r} was not written through a guard") from error

    def _delete(self, name: str) -> None:
        try:
            self._client.delete_object(Bucket=self._bucket, Key=name)
        except Exception as error:
            # Nothing points to it: it costs its storage, and no more.
            if not _code(error):
                raise


def _encoded(fence: Fence, value: str, mark: str) -> bytes:
    return json.dumps({"tenure": _FORMAT, **asdict(fence), "value": value, "mark": mark}).encode()


def _code(error: Exception) -> str:
    """The store's own code of an error answer; empty if it is none."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
