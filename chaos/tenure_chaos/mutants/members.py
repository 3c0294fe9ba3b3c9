"""Mutants of changes of members."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_CHANGES = "tenure_cluster.raft.changes"

TWO_CHANGES_AT_ONCE = Mutant(
    "two changes of members at once",
    "a leader begins a change of members while the one before is not committed",
    (
        Edit(
            f"{_CHANGES}:_not_now",
            "if before.index > consensus.replica.commit_index:",
            "if before.index > 1 << 60:",
        ),
    ),
    profiles.MEMBERS_COME_AND_GO,
)

NEW_LEADER_DOES_NOT_WAIT = Mutant(
    "change of members before an entry of the own term",
    "a new leader changes the members before it has committed anything of its own",
    (Edit(f"{_CHANGES}:_not_now", "if not consensus.serving:", "if consensus.office is None:"),),
    profiles.MEMBERS_COME_AND_GO,
)

PROMOTED_TOO_EARLY = Mutant(
    "learner made a voter before it has caught up",
    "a new member counts in majorities as soon as it answers",
    (
        Edit(
            f"{_CHANGES}:has_caught_up",
            "return follower.mode is Mode.STREAM and knows and lacks <= CAUGHT_UP_ENTRIES",
            "return knows or lacks >= 0",
        ),
    ),
    profiles.MEMBERS_WITH_MUCH_TO_LEARN,
)

EFFECTIVE_WHEN_COMMITTED = Mutant(
    "change of members that counts when it is committed",
    "majorities are those of the members before an entry until it is committed",
    (
        Edit(
            "tenure_cluster.raft.consensus:Consensus._note_members",
            "if members.version == self._members_seen:",
            "if members.version == self._members_seen or members.current.index > self.replica.commit_index:",
        ),
    ),
    profiles.MEMBERS_COME_AND_GO,
)

LEARNER_COUNTS = Mutant(
    "learner that counts in majorities",
    "a leader takes for committed what a majority of all members has, learners among them",
    (
        Edit(
            "tenure_cluster.raft.consensus:Consensus._note_members",
            "voters = members.other_voters",
            "voters = members.others",
        ),
    ),
    profiles.MEMBERS_COME_AND_GO,
)

NOT_ROLLED_BACK = Mutant(
    "change of members that outlives its entry",
    "members stay what an entry said that has been cut off the log",
    (
        Edit(
            "tenure_cluster.raft.membership:Members.cut",
            "while len(self._along) > 1 and self._along[-1].index > last_index:",
            "while False:",
        ),
    ),
    profiles.MEMBERS_COME_AND_GO,
)

NOT_IN_THE_SNAPSHOT = Mutant(
    "members left out of the snapshot",
    "a node that starts from a snapshot counts the members that there were at first",
    (
        Edit(
            "tenure_cluster.raft.membership:for_snapshot",
            "return (_encode(membership),) if membership.index else ()",
            "return ()",
        ),
    ),
    profiles.MEMBERS_WITH_MUCH_TO_LEARN,
)

NAME_GIVEN_AGAIN = Mutant(
    "name of a removed member given again",
    "a node may be added under the name of one that was removed, whose votes it has forgotten",
    (
        Edit(
            f"{_CHANGES}:_not_this",
            "if change.id in before.removed:",
            "if change.id in before.removed and not before.members:",
        ),
    ),
    profiles.MEMBERS_ALL_REPLACED,
)

MUTANTS = (
    TWO_CHANGES_AT_ONCE,
    NEW_LEADER_DOES_NOT_WAIT,
    PROMOTED_TOO_EARLY,
    EFFECTIVE_WHEN_COMMITTED,
    LEARNER_COUNTS,
    NOT_ROLLED_BACK,
    NOT_IN_THE_SNAPSHOT,
    NAME_GIVEN_AGAIN,
)
