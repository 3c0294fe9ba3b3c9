"""One tenant that asks for many times its quota, in a process of its own: `python bench/storming.py PLAN`.

PLAN is JSON: see Plan. What the tenant was told is printed as JSON when the time is over.

Half of the acquires come by HTTP on connections of their own, half by streams in frames; what is granted is
released at once, so that it is the rate that refuses. Beside them the tenant renews some leases that it held
before, tries to watch ten times as much as it may, and keeps idle connections. With a rate of 0 it asks as
fast as it is answered.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

import msgspec
from streams import Answers, Stream, streams_to
from targets import HttpAnswer, HttpConnection, NoAnswer, NotSent, install_uvloop

NEVER_REFUSED = ("renew", "release")
FRAMES_UNDER_WAY_MAX = 4


class Plan(msgspec.Struct, kw_only=True):
    """What the tenant does."""

    port: int
    credential: str
    seconds: float
    rate: float
    """Acquires a second, all together; 0: as fast as they are answered."""
    connections: int
    """By HTTP."""
    streams: int
    frame: int
    """Acquires a frame."""
    idle: int
    """Connections that ask for nothing after their first call."""
    watches: int
    """How many the tenant tries to have."""
    held: int
    """Leases that it renews."""


class Told:
    """What the tenant was answered."""

    def __init__(self) -> None:
        self.by_operation: dict[str, Counter[str]] = {}
        self.granted_s: list[float] = []
        self.exceeded: Counter[str] = Counter()
        self.unnamed = self.skipped = self.broken = 0
        """429s that do not say what was exceeded; acquires not sent for want of answers; lost connections."""

    def note(self, operation: str, status: int, body: Any) -> None:
        self.by_operation.setdefault(operation, Counter())[str(status)] += 1
        if status == 429:
            named = isinstance(body, dict) and body.get("quota")
            self.exceeded[f"{operation}: {named or body.get('code')}"] += 1
            self.unnamed += not (named and body.get("code") == "quota" and body.get("max"))
        elif operation == "acquire" and status == 200:
            self.granted_s.append(time.time())

    def figures(self, began_s: float) -> dict[str, Any]:
        seconds = Counter(int(at_s - began_s) for at_s in self.granted_s)
        return {
            "answers": {name: dict(counts) for name, counts in self.by_operation.items()},
            "exceeded": dict(self.exceeded),
            "granted": len(self.granted_s),
            "granted_by_second": [seconds[second] for second in range(max(seconds, default=0) + 1)],
            "unnamed": self.unnamed,
            "skipped": self.skipped,
            "broken": self.broken,
        }


class Storm:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.told = Told()
        self._authorization = f"Authorization: Bearer {plan.credential}\r\n".encode()

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        head = b"%b %b HTTP/1.1\r\nHost: tenure\r\n" % (method.encode(), path.encode())
        typed = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(content) if content else b""
        return head + self._authorization + typed + b"\r\n" + content

    async def ask(self, connection: HttpConnection, operation: str, body: dict[str, Any]) -> HttpAnswer:
        answer = await connection.send(self.request("POST", f"/v1/{operation}", body))
        self.told.note(operation, answer.status, json.loads(answer.body))
        return answer

    async def by_http(self, number: int, until_s: float, period_s: float) -> None:
        connection = await HttpConnection.open(f"http://127.0.0.1:{self.plan.port}", 30)
        due_s = time.time() + period_s * number / max(1, self.plan.connections)
        count = 0
        try:
            while due_s < until_s and time.time() < until_s:
                await asyncio.sleep(max(0.0, due_s - time.time()))
                count += 1
                body = {"key": f"http/{number}/{count}", "owner": "storm", "ttl_ms": 30_000}
                answer = await self.ask(connection, "acquire", body)
                if answer.status == 200:
                    lease_id = json.loads(answer.body)["lease"]["lease_id"]
                    await self.ask(connection, "release", {"lease_id": lease_id})
                due_s += period_s
                while period_s and due_s + period_s < time.time():
                    self.told.skipped += 1
                    due_s += period_s
        except (NotSent, NoAnswer):
            self.told.broken += 1
        finally:
            connection.close()

    async def by_stream(self, stream: Stream, number: int, until_s: float, period_s: float) -> None:
        due_s = time.time() + period_s * number / max(1, self.plan.streams)
        releases: set[asyncio.Task[None]] = set()
        count = 0

        async def release(answers: Answers) -> None:
            granted = [body["lease"]["lease_id"] for body in answers.bodies if "lease" in body]
            for status, body in zip(answers.statuses, answers.bodies, strict=True):
                self.told.note("acquire", status, body)
            if granted:
                ended = await stream.send([("release", {"lease_id": lease_id}) for lease_id in granted])
                for status, body in zip(ended.statuses, ended.bodies, strict=True):
                    self.told.note("release", status, body)

        async def one(sent: "asyncio.Future[Answers]") -> None:
            await release(await sent)

        try:
            while due_s < until_s and time.time() < until_s:
                await asyncio.sleep(max(0.0, due_s - time.time()))
                if len(releases) >= FRAMES_UNDER_WAY_MAX and period_s:
                    self.told.skipped += self.plan.frame
                    due_s += period_s
                    continue
                frame: list[tuple[str, dict[str, Any]]] = []
                for _ in range(self.plan.frame):
                    count += 1
                    body = {"key": f"stream/{number}/{count}", "owner": "storm", "ttl_ms": 30_000}
                    frame.append(("acquire", body))
                task = asyncio.create_task(one(stream.send(frame)))
                releases.add(task)
                task.add_done_callback(releases.discard)
                if not period_s:
                    await task
                due_s += period_s
            await asyncio.gather(*releases)
        except ConnectionError:
            self.told.broken += 1

    async def renew(self, stream: Stream, leases: list[str], until_s: float) -> None:
        while time.time() < until_s:
            answers = await stream.send([("renew", {"lease_id": lease_id}) for lease_id in leases])
            for status, body in zip(answers.statuses, answers.bodies, strict=True):
                self.told.note("renew", status, body)
            await asyncio.sleep(0.2)

    async def watch(self, stream: Stream, until_s: float) -> None:
        while time.time() < until_s:
            answers = await stream.send([("watch", {"prefix": "none/"})] * self.plan.watches)
            for status, body in zip(answers.statuses, answers.bodies, strict=True):
                self.told.note("watch", status, body)
            await asyncio.sleep(1.0)

    async def be_idle(self, until_s: float) -> None:
        opened: list[HttpConnection] = []
        try:
            for _ in range(self.plan.idle):
                connection = await HttpConnection.open(f"http://127.0.0.1:{self.plan.port}", 30)
                opened.append(connection)
                await connection.send(self.request("GET", "/v1/cluster"))
            await asyncio.sleep(max(0.0, until_s - time.time()))
        except (NotSent, NoAnswer):
            self.told.broken += 1
        finally:
            for connection in opened:
                connection.close()

    async def run(self) -> dict[str, Any]:
        plan, half = self.plan, self.plan.rate / 2
        async with streams_to("127.0.0.1", plan.port, plan.streams + 2, plan.credential) as opened:
            renewer, watcher, *streams = opened
            leases: list[str] = []
            for number in range(plan.held):
                granted = await renewer.call("acquire", key=f"held/{number}", owner="storm", ttl_ms=60_000)
                leases.append(granted["lease"]["lease_id"])
            began_s = time.time()
            until_s = began_s + plan.seconds
            http_s = plan.connections / half if half else 0.0
            stream_s = plan.streams * plan.frame / half if half else 0.0
            await asyncio.gather(
                self.renew(renewer, leases, until_s),
                self.watch(watcher, until_s),
                self.be_idle(until_s),
                *(self.by_http(number, until_s, http_s) for number in range(plan.connections)),
                *(self.by_stream(each, number, until_s, stream_s) for number, each in enumerate(streams)),
            )
        return {"began_s": began_s, "ended_s": time.time(), **self.told.figures(began_s)}


def main() -> None:
    install_uvloop()
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    print(json.dumps(asyncio.run(Storm(plan).run())))


if __name__ == "__main__":
    main()
