"""Which session a lease is acquired in.

The leases of one client share a session as far as they can: those of one owner and one TTL do, so a thousand
of them cost one heartbeat. The cluster takes the leases of one session to be one party's. So a session is
shared by one owner only, and it finds a deadlock between owners. And because nobody can wait for themselves,
a lease on a key that the session holds or waits for already, as when two tasks of one owner compete, gets a
session of its own and waits in the queue like everybody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tenure import _requests
from tenure._calls import Calls
from tenure._kept import KeptSession
from tenure._renewer import Renewer
from tenure.errors import ClusterUnavailable, OutcomeUnknown

Group = tuple[str, int]
"""Owner and TTL in milliseconds."""


class Sessions:
    """The sessions of one client. To be used from its event loop."""

    def __init__(self, calls: Calls, renewer: Renewer) -> None:
        self._calls = calls
        self._renewer = renewer
        self._shared: dict[Group, KeptSession] = {}
        self._opening: dict[Group, asyncio.Task[KeptSession]] = {}

    async def use(self, owner: str, ttl_ms: int, keys: Sequence[str], *, shared: bool = True) -> KeptSession:
        """A live session, with an acquire of the keys begun in it. Raises ClusterUnavailable and what else
        opening a session can raise; then nothing has been acquired."""
        group = (owner, ttl_ms)
        session = await self._shared_session(group) if shared else await self._open(group)
        if session.uses_any(keys):
            session, shared = await self._open(group), False
        session.use(keys)
        if not shared:
            session.retire()
        return session

    async def _shared_session(self, group: Group) -> KeptSession:
        session = self._shared.get(group)
        if session is not None and session.usable():
            return session
        if session is not None:
            del self._shared[group]
            session.retire()
        opening = self._opening.get(group)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(group))
            self._opening[group] = opening
            opening.add_done_callback(lambda done: self._opened(group, done))
        # Whoever gives up takes nobody else's session away.
        return await asyncio.shield(opening)

    def _opened(self, group: Group, opening: asyncio.Task[KeptSession]) -> None:
        self._opening.pop(group, None)
        if not opening.cancelled() and opening.exception() is None:
            self._shared[group] = opening.result()

    async def _open(self, group: Group) -> KeptSession:
        owner, ttl_ms = group
        request = _requests.open_session({"owner": owner, "ttl_ms": ttl_ms})
        try:
            answer = await self._calls.perform(self._calls.call(request))
        except OutcomeUnknown as error:
            # A session that nobody knows holds nothing and ends by itself.
            raise ClusterUnavailable(detail=f"no session could be opened: {error}") from error
        opened = answer.value.session
        session = KeptSession(opened.session_id, ttl_ms=opened.ttl_ms, clock=self._calls.clock)
        session.renewed(answer.sent_at, opened.expires_in_ms)
        self._renewer.keep(session)
        return session
