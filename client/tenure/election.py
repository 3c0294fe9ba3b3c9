"""Leader election: a lease that is campaigned for as long as there is anything to lead."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tenure._handle import State
from tenure._terms import FOREVER_S
from tenure._watch import Watch
from tenure.answers import ENDS, EventKind, LeaseInfo
from tenure.errors import (
    ClusterUnavailable,
    InvalidRequest,
    LeaseLost,
    NotAuthorized,
    TenureError,
)

if TYPE_CHECKING:
    from tenure.aio import Client, Lease

T = TypeVar("T")
L = TypeVar("L")

AGAIN_S: Final = 1.0
"""Pause before the next try after a campaign that failed."""
CHANGES: Final = ENDS | {EventKind.GRANTED, EventKind.UNPARKED}
"""The events after which another may be in office, or another token."""

log = logging.getLogger("tenure")


class Election:
    """One office that one at a time holds: the lease on the key ``name``."""

    def __init__(self, client: Client, lease: Lease) -> None:
        self._client = client
        self._lease = lease

    @property
    def name(self) -> str:
        return self._lease.key

    async def run(self, lead: Callable[..., Awaitable[T]]) -> T:
        """Campaign, and await ``lead(handle)`` (or ``lead()``) while in office, as often as it takes.

        ``lead`` is cancelled if the office is lost, and called anew once it is won again. Returns what it
        returns, or raises what it raises of its own; then the office is free. A cluster that is away is
        waited for. Cancelling leaves the queue, or the office.
        """
        takes_handle = accepts_handle(lead)
        while True:
            held = None
            try:
                async with self._lease as held:
                    return await (lead(held) if takes_handle else lead())
            except (InvalidRequest, NotAuthorized):
                raise
            except LeaseLost as lost:
                if held is None or held.state is not State.LOST:
                    raise
                log.warning("the office %r was lost: %s", self.name, lost)
            except TenureError as error:
                if held is not None:
                    raise  # the body's own
                log.warning("campaigning for %r goes on: %s", self.name, error)
            await asyncio.sleep(AGAIN_S)

    async def leader(self) -> LeaseInfo | None:
        """Who is in office, or None."""
        return await self._client.get(self.name)

    async def observe(self) -> AsyncGenerator[LeaseInfo | None, None]:
        """Who is in office, now and after each change; None while nobody is. It watches, so it learns of a
        change at once; who has left again by the time that it looks is not seen. A cluster that is away is
        waited for."""
        seen: int | None = -1
        watch: Watch | None = None
        try:
            while True:
                try:
                    if watch is None:
                        # Of all keys that begin with the name, the name itself comes first.
                        page = await self._client.leases_page(self.name, limit=1)
                        leader = next((lease for lease in page.leases if lease.key == self.name), None)
                        watch = Watch(self._client._calls, self.name, page.revision)
                    else:
                        event = await watch.next()
                        if event.kind == EventKind.GAP:
                            await watch.close()
                            watch = None
                            continue
                        if event.key != self.name or event.kind not in CHANGES:
                            continue
                        leader = await self.leader()
                except ClusterUnavailable as error:
                    log.info("observing %r goes on: %s", self.name, error)
                    if watch is not None:
                        await watch.close()
                        watch = None
                    await asyncio.sleep(AGAIN_S)
                    continue
                token = None if leader is None else leader.token
                if token != seen:
                    seen = token
                    yield leader
        finally:
            if watch is not None:
                await watch.close()


def election_lease(
    client: Client, name: str, *, owner: str | None, ttl: float, metadata: Mapping[str, str] | None
) -> Lease:
    """The lease of an office: waited for without end, in a session of its own."""
    return client.lease(name, owner=owner, ttl=ttl, metadata=metadata, wait=FOREVER_S, own_session=True)


def accepts_handle(lead: Callable[..., object]) -> bool:
    """Whether it can be called with one argument."""
    try:
        inspect.signature(lead).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


class RwLock(Generic[L]):
    """Many readers or one writer of a key. A waiting writer goes before readers who come later."""

    def __init__(self, *, read: L, write: L) -> None:
        self.read = read
        """A lease that is held together with other readers."""
        self.write = write
        """A lease that is held alone."""
