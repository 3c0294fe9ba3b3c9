"""The load of a rolling upgrade, as a process of its own, so that clients of both versions can make it.

    python upgrade_load.py PREFIX ENDPOINTS

Holders renew one lease each, a handle keeps itself, workers acquire, commit and release, and a watcher hears
of it all. Each line on standard input is answered by the counts so far; after the end of the input the load
ends, and the last counts are printed. It uses nothing of this folder and nothing but what every version's
client has.
"""

import asyncio
import contextlib
import json
import sys
import time
from typing import Any

import tenure

RENEW_EVERY_S = 0.05
TTL_S = 60.0
HANDLE_TTL_S = 10.0
WAIT_S = 10.0
CATCH_UP_S = 60.0


class Load:
    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._ending = False
        self._granted: dict[tuple[str, int], str] = {}
        self._seen: set[tuple[str, int]] = set()
        self._revision = 0
        self._mark = asyncio.Event()
        self.counts = {"renewals": 0, "commits": 0, "releases": 0, "events": 0, "handle_checks": 0}
        self.longest_renewal_s = 0.0
        self.failed: list[str] = []
        """Every renewal that failed, and whatever else an upgrade must not show."""
        self.troubles: dict[str, int] = {}
        """Calls of workers that ended without an answer; they may."""

    async def run(self) -> None:
        watching = asyncio.create_task(self._watch())
        while not watching.done() and not await self._marked():
            pass
        tasks = [self._hold(number) for number in range(3)] + [self._work(number) for number in range(3)]
        await asyncio.gather(*tasks, self._keep_handle(), self._obey())
        if not await self._marked(CATCH_UP_S):
            self.failed.append("the watch does not catch up")
        missed = set(self._granted) - self._seen
        if missed:
            self.failed.append(f"{len(missed)} grants that no event told of: {sorted(missed)[:3]}")
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    async def _obey(self) -> None:
        """Until standard input ends."""
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            self.tell()
        self._ending = True

    def tell(self) -> None:
        told = {
            **self.counts,
            "longest_renewal_s": round(self.longest_renewal_s, 3),
            "failed": self.failed,
            "troubles": self.troubles,
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()

    async def _marked(self, timeout_s: float = 1.0) -> bool:
        """Whether the watcher sees what happens now, and so all that has happened before."""
        self._mark.clear()
        grant = await self._client.acquire(f"{self._prefix}/mark", owner="mark", ttl=TTL_S)
        await self._client.release(grant.lease_id)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._mark.wait(), timeout_s)
        return self._mark.is_set()

    async def _hold(self, number: int) -> None:
        grant = await self._client.acquire(
            f"{self._prefix}/held/{number}", owner=f"holder-{number}", ttl=TTL_S
        )
        while not self._ending:
            began = time.monotonic()
            try:
                renewed = await self._client.renew(grant.lease_id)
            except tenure.TenureError as error:
                self.failed.append(f"renewal: {type(error).__name__}: {error}")
            else:
                self.counts["renewals"] += 1
                self.longest_renewal_s = max(self.longest_renewal_s, time.monotonic() - began)
                if renewed.token != grant.token:
                    self.failed.append(f"the token of a lease went from {grant.token} to {renewed.token}")
            await asyncio.sleep(RENEW_EVERY_S)

    async def _keep_handle(self) -> None:
        """A lease that its handle renews by itself."""
        try:
            async with self._client.lease(f"{self._prefix}/handle", owner="handle", ttl=HANDLE_TTL_S):
                while not self._ending:
                    self.counts["handle_checks"] += 1
                    await asyncio.sleep(RENEW_EVERY_S)
        except tenure.TenureError as error:
            self.failed.append(f"handle: {type(error).__name__}: {error}")

    async def _work(self, number: int) -> None:
        """All of them after the same two keys, so that they wait for one another."""
        last: dict[str, int] = {}
        for turn in range(sys.maxsize):
            if self._ending:
                return
            key = f"{self._prefix}/shared/{turn % 2}"
            try:
                grant = await self._client.acquire(key, owner=f"worker-{number}", ttl=TTL_S, wait=WAIT_S)
                self._granted[key, grant.token] = f"worker-{number}"
                if grant.token <= last.get(key, 0):
                    self.failed.append(f"token {grant.token} of {key} after {last[key]}")
                last[key] = grant.token
                value = f"{number}:{turn}"
                await self._client.commit(
                    key, lease_id=grant.lease_id, token=grant.token, mode="current", value=value
                )
                self.counts["commits"] += 1
                await self._client.release(grant.lease_id)
                self.counts["releases"] += 1
            except tenure.TenureError as error:
                name = f"{type(error).__name__} ({error.code})"
                self.troubles[name] = self.troubles.get(name, 0) + 1
                if isinstance(error, tenure.CommitRefused):
                    self.failed.append(f"commit: {error}")
            await asyncio.sleep(0.01)

    async def _watch(self) -> None:
        try:
            async for event in self._client.watch(f"{self._prefix}/"):
                self.counts["events"] += 1
                if event.kind == "gap" or event.revision <= self._revision:
                    self.failed.append(f"{event.kind} at {event.revision} after {self._revision}")
                self._revision = event.revision
                if event.kind == "released" and event.key.endswith("/mark"):
                    self._mark.set()
                if event.kind == "granted":
                    self._seen.add((event.key, event.token))
        except tenure.TenureError as error:
            self.failed.append(f"watch: {type(error).__name__}: {error}")


async def main() -> None:
    prefix, endpoints = sys.argv[1:]
    async with tenure.connect(endpoints, timeout=20.0) as client:
        load = Load(client, prefix)
        await load.run()
    load.tell()


if __name__ == "__main__":
    asyncio.run(main())
