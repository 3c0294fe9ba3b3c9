"""The receiving side of a handover: a session that a lease can be given to, and the way to its handle.

The holder has to be told the session's id, in whatever way the two talk; what is in the metadata and in the
last note of progress comes with the lease. ``acquire`` finds the lease whichever comes first: handed over
before, the session has it, and it is answered; handed over later, the acquire that waits is answered with
it. An acquire that waits may also get the lease in its turn: then nobody has handed anything over.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from tenure._acquisition import Acquisition
from tenure._kept import KeptSession
from tenure._requests import Request
from tenure._terms import Terms, milliseconds
from tenure.errors import InvalidRequest

if TYPE_CHECKING:
    from tenure.aio import Client, Held


class Successor:
    """A session of its own for one lease. Leaving the block ends it, unless a handle lives in it."""

    def __init__(self, client: Client, terms: Terms) -> None:
        self._client = client
        self._terms = terms
        self._session: KeptSession | None = None

    async def __aenter__(self) -> Successor:
        if self._session is not None:
            raise InvalidRequest(detail="this successor is entered already")
        terms = self._terms
        self._session = await self._client._sessions.use(terms.owner, terms.ttl_ms, terms.keys, shared=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.unuse(self._terms.keys)

    @property
    def session_id(self) -> str:
        """What the holder hands the lease over to. Whoever knows it can acquire in the session, so tell it to
        the holder alone."""
        return self._entered().session_id

    async def acquire(self, *, wait: float | None = None) -> Held:
        """The lease, handed over already or within ``wait`` seconds (default: as the lease was made), or
        acquired in its turn. Returns and raises as ``Lease.acquire``; LeaseLost if the session is over."""
        session, client = self._entered(), self._client
        terms = self._terms
        wait_s = terms.wait_s if wait is None else wait
        milliseconds(wait_s, "wait")

        def undo(request: Request[Any]) -> None:
            session.use(terms.keys)
            client._renewer.undo(session, request, lambda _: session.unuse(terms.keys))

        body = terms.body(session.session_id, "return")
        acquisition = Acquisition(client._calls, body, wait_s=wait_s, undo=undo)
        answer = await acquisition.run()
        return client._held(session, answer, acquisition.new_since)

    def _entered(self) -> KeptSession:
        if self._session is None:
            raise InvalidRequest(detail="a successor is entered by `async with` first")
        return self._session
