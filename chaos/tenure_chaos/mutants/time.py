"""Mutants of time: who counts it, from when, and by which clock."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_PUMP = "tenure_cluster.raft.pump"

WALL_CLOCK_IN_APPLY = Mutant(
    "local wall clock in apply",
    "each replica judges what has expired by its own wall clock at the moment it applies an entry",
    (
        # In the simulation wall clocks begin at an epoch of their own; cluster time begins at zero.
        Edit(
            f"{_PUMP}:Pump.on_apply",
            "results = self._machine.apply(index, pairs) if pairs else ()",
            "from tenure_chaos.sim.clock import EPOCH_MS\n"
            "    from tenure_cluster.lease import machine\n"
            "    machine.local_ms = lambda: self._clock.wall_ms() - EPOCH_MS\n"
            "    results = self._machine.apply(index, pairs) if pairs else ()",
        ),
        Edit(
            "tenure_cluster.lease.machine:LeaseMachine.apply",
            "moved = at_ms > table.time_ms",
            "at_ms = local_ms()\n    moved = at_ms > table.time_ms",
        ),
    ),
)

TIME_FROM_ZERO = Mutant(
    "cluster time restarted at zero by a new leader",
    "a leader that takes office counts from zero, not from the greatest stamp in its log",
    (
        Edit(
            f"{_PUMP}:Pump._note_office",
            "base_ms = max(self._machine.time_ms, self._last_stamp_ms(consensus))",
            "base_ms = 0",
        ),
    ),
)

TIME_FROM_WHAT_IS_APPLIED = Mutant(
    "cluster time resumed from what is applied",
    "a leader that takes office does not look for stamps in the part of its log that is not applied yet",
    (
        Edit(
            f"{_PUMP}:Pump._note_office",
            "base_ms = max(self._machine.time_ms, self._last_stamp_ms(consensus))",
            "base_ms = self._machine.time_ms",
        ),
    ),
    profiles.LEADERS_COME_AND_GO,
)

STAMPS_OF_THE_WALL_CLOCK = Mutant(
    "stamps of the wall clock",
    "the leader stamps by its wall clock, which somebody may set",
    (
        Edit(
            "tenure_cluster.service.proposals:Proposer.propose",
            "self._raft.propose(self._raft.now_ms(), encoded, settled)",
            "from tenure_chaos.sim.clock import EPOCH_MS\n"
            "    self._raft.propose(self._wall_ms() - EPOCH_MS, encoded, settled)",
        ),
    ),
)

READ_DECIDES_BY_THE_CLOCK = Mutant(
    "read that decides by the clock",
    "a read takes for over what is past its deadline by the clock, though the log may still renew it",
    (
        Edit(
            "tenure_cluster.service.reads:View.live",
            "if deadline_ms <= self.as_of_ms:",
            "if deadline_ms <= self.now_ms:",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
)

REPLAY_TELLS_THE_WHOLE_TTL = Mutant(
    "replay that tells the whole TTL",
    "what remains of a lease is told as if it had been granted this moment",
    (
        Edit(
            "tenure_cluster.service.answers:lease_body",
            "expires_in_ms=remaining_ms(deadline_of(grant), now_ms),",
            "expires_in_ms=session.ttl_ms,",
        ),
    ),
    profiles.CLOSE_TO_THE_END,
)

MUTANTS = (
    WALL_CLOCK_IN_APPLY,
    TIME_FROM_ZERO,
    TIME_FROM_WHAT_IS_APPLIED,
    STAMPS_OF_THE_WALL_CLOCK,
    READ_DECIDES_BY_THE_CLOCK,
    REPLAY_TELLS_THE_WHOLE_TTL,
)
