"""SIGSTOP and SIGCONT of a client's process, for longer than its leases live."""

from tenure_chaos.live.faults.kind import Fault
from tenure_chaos.live.work.processes import ClientProcess


class PauseClient(Fault):
    name = "pause client"
    what = "SIGSTOP of a client's process: its leases run out, and it comes back believing"
    how_healed = "SIGCONT"
    lasts_s = (1.0, 9.0)
    struck: ClientProcess | None = None

    async def inject(self) -> str | None:
        free = [client for client in self.bench.clients.values() if not client.reserved_by]
        if not free:
            return None
        self.struck = self.rng.choice(free)
        self.struck.reserved_by = self.id
        self.struck.pause()
        return self.struck.name

    async def heal(self) -> None:
        if self.struck is not None and self.struck.paused:
            self.struck.resume()
