"""Mutants of consensus: votes, commits, and what becomes of them."""

from tenure_chaos.mutants import profiles
from tenure_chaos.mutants.edits import Edit
from tenure_chaos.mutants.mutant import Mutant

_CONSENSUS = "tenure_cluster.raft.consensus"

VOTE_FOR_ANYBODY = Mutant(
    "vote for a shorter log",
    "a node votes for whoever asks first, whatever the log of that one lacks",
    (
        Edit(
            f"{_CONSENSUS}:Consensus._on_vote_request",
            '"last_log_index": message.last_index,',
            '"last_log_index": 1 << 60,',
        ),
        Edit(
            f"{_CONSENSUS}:Consensus._on_vote_request",
            '"last_log_term": message.last_term,',
            '"last_log_term": 1 << 60,',
        ),
        Edit(
            f"{_CONSENSUS}:Consensus._on_pre_vote_request",
            "(message.last_term, message.last_index),",
            "(1 << 60, 1 << 60),",
        ),
    ),
    profiles.LEADERS_COME_AND_GO,
)

TWO_VOTES_IN_A_TERM = Mutant(
    "two votes in one term",
    "a node forgets for whom it has voted when somebody else asks",
    (
        Edit(
            f"{_CONSENSUS}:Consensus._on_vote_request",
            "self.replica.receive(peer, request)",
            "if self.replica.role == 'follower':\n"
            "            self.replica._SyncObj__setCurrentTerm(self.replica.term, None)\n"
            "        self.replica.receive(peer, request)",
        ),
    ),
    {**profiles.LEADERS_COME_AND_GO, "nodes": "5"},
)

ACKNOWLEDGED_BEFORE_THE_QUORUM = Mutant(
    "commit without a quorum",
    "a leader takes for committed what is durable on its own disk",
    (
        Edit(
            f"{_CONSENSUS}:Consensus.apply_committed",
            "self._office.count_own_copy_when_durable()",
            "self._office.count_own_copy_when_durable()\n"
            "        replica.commit_index = max(replica.commit_index, self.journal.durable_index)",
        ),
    ),
)

UNKNOWN_CALLED_NOT_EXECUTED = Mutant(
    "unknown outcome called not executed",
    "what was appended when the office was lost is answered as not executed",
    (
        Edit(
            "tenure_cluster.raft.proposals:Proposals.end_office",
            "self._answers.extend((done, Unknown()) for done in batch.dones)",
            "self._answers.extend((done, refusal) for done in batch.dones)",
        ),
    ),
    profiles.OUTCOMES_UNKNOWN,
)

APPLIED_AGAIN = Mutant(
    "entry applied again after a restart",
    "a node that has loaded a snapshot applies its last entry once more",
    (
        Edit(
            f"{_CONSENSUS}:Consensus.__init__",
            "self.replica.commit_index = self.replica.applied_index = boundary[1][1]",
            "self.replica.commit_index = self.replica.applied_index = boundary[0][1]",
        ),
    ),
    profiles.MANY_SNAPSHOTS,
)

OWN_TERM_NOT_ASKED = Mutant(
    "entry of an earlier term committed by counting",
    "a leader commits what a majority holds, though it is of an earlier leader's term",
    (
        Edit(
            "tenure_cluster.raft.leadership:Leadership.count_own_copy_when_durable",
            "replica, durable = self._replica, self._replica.log.durable_index",
            "replica, durable = self._replica, self._replica.log.durable_index\n"
            "    held = sorted([durable, *(replica.match_index(peer) for peer in self.followers)])\n"
            "    replica.commit_index = max(replica.commit_index, held[(len(held) - 1) // 2])",
        ),
    ),
    profiles.LEADERS_COME_AND_GO,
)

MUTANTS = (
    VOTE_FOR_ANYBODY,
    TWO_VOTES_IN_A_TERM,
    ACKNOWLEDGED_BEFORE_THE_QUORUM,
    UNKNOWN_CALLED_NOT_EXECUTED,
    APPLIED_AGAIN,
    OWN_TERM_NOT_ASKED,
)
