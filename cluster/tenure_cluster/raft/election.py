"""Who may ask for votes, and who may be given one: pure decisions over (message, now).

Plain Raft lets every follower whose timer has run out raise the term, and so depose a healthy leader that
it merely cannot hear. Three rules keep the peace without touching safety:

- Pre-vote. A node asks the others whether they would vote for it, and raises its term only when a majority
  would.
- Stickiness. A node that has heard its leader within the minimum election timeout, or leads itself with the
  evidence of a majority within that time, grants neither pre-votes nor votes.
- Silence after a start. A node that has just started does not know whom its previous life had heard, so for
  the minimum election timeout it grants nothing.

The exception is the hint of a closed connection. When the leader's connection closes its process has ended,
in all likelihood, so its followers stop being sticky to it and ask for pre-votes at once, the first in the
order of names before the others, so that they do not split the vote. A wrong hint costs one refused
question: the other followers still hear their leader.

And the order of the leader itself, which hands its office over (transfer.py): the node so ordered asks for
votes without pre-votes, and nobody is sticky to a leader that wants to be replaced.
"""

import math
from collections.abc import Callable, Collection
from enum import Enum

FOLLOWER_RANK_DELAY_S = 0.025
"""After a hint each follower waits this long for every follower before it in the order of names."""

HINT_RETRY_S = 0.05
"""While a hint is fresh, a refused round of pre-votes is repeated after this time, and up to as much more
by chance."""


class Move(Enum):
    """What a node whose election timer has run out should do now."""

    WAIT = "wait"
    ASK = "ask"
    CAMPAIGN = "campaign"


class Election:
    """What one node remembers to decide about elections. Nothing of it is durable; terms and votes are kept
    elsewhere."""

    def __init__(
        self,
        *,
        peers: Collection[str],
        timeout_min_s: float,
        now_s: float,
        random: Callable[[], float],
        pre_vote: bool = True,
        sticky: bool = True,
        silent_start: bool = True,
        vote_once: bool = True,
    ) -> None:
        self._peers = frozenset(peers)
        self._timeout_min_s = timeout_min_s
        self._random = random
        self._pre_vote = pre_vote
        self._sticky = sticky
        self._vote_once = vote_once
        self._silent_until_s = now_s + timeout_min_s if silent_start and peers else now_s
        self._heard_s = float("-inf")
        self._hint_until_s = float("-inf")
        self._asked_term: int | None = None
        self._granted: set[str] = set()
        self._ask_again_s = float("-inf")
        self._voters: set[str] = set()
        self._voters_term = -1
        self._ordered_term: int | None = None

    def set_voters(self, peers: Collection[str]) -> None:
        """Who the other voters are now."""
        self._peers = frozenset(peers)

    def _is_majority(self, others: int) -> bool:
        return (others + 1) * 2 > len(self._peers) + 1

    # -- evidence

    def heard(self, now_s: float) -> None:
        """A leader of a term not lower than ours has spoken."""
        self._heard_s = now_s
        self._hint_until_s = float("-inf")
        self._asked_term = None

    @property
    def heard_s(self) -> float:
        """When a leader last spoke; minus infinity after a hint that it is gone."""
        return self._heard_s

    def hint(self, now_s: float) -> None:
        """The leader's connection has closed."""
        self._heard_s = float("-inf")
        self._hint_until_s = now_s + self._timeout_min_s
        self._ask_again_s = float("-inf")

    def hint_delay_s(self, node_id: str, leader_id: str) -> float:
        """How long this node should wait after a hint before it asks."""
        return FOLLOWER_RANK_DELAY_S * sum(1 for peer in self._peers if peer < node_id and peer != leader_id)

    def is_sticky(self, now_s: float, leading_since_s: float | None) -> bool:
        """Whether this node stands by its leader. `leading_since_s`: if it leads, since when a majority has
        followed."""
        if not self._sticky:
            return False
        if leading_since_s is not None:
            return now_s - leading_since_s < self._timeout_min_s
        return now_s < self._silent_until_s or now_s - self._heard_s < self._timeout_min_s

    def may_vote(self, now_s: float, leading_since_s: float | None) -> bool:
        """Whether a request for a vote may be considered at all; Raft's own rules come after."""
        return not self.is_sticky(now_s, leading_since_s)

    # -- the candidate's side

    def order(self, term: int) -> None:
        """The leader of `term` has told this node to hold an election."""
        self._ordered_term = term

    def is_ordered(self, term: int) -> bool:
        """Whether an election for `term` is one that the leader of the term before has ordered."""
        return self._ordered_term is not None and term == self._ordered_term + 1

    def next_move(self, now_s: float, term: int) -> Move:
        """The election timer of this node has run out in `term`."""
        if self._ordered_term == term:
            return Move.CAMPAIGN
        if not self._pre_vote or not self._peers:
            return Move.CAMPAIGN
        if self._asked_term == term and self._is_majority(len(self._granted)):
            self._asked_term = None
            return Move.CAMPAIGN
        if self._asked_term == term and now_s < self._ask_again_s:
            return Move.WAIT
        self._asked_term = term
        self._granted = set()
        base_s = HINT_RETRY_S if now_s < self._hint_until_s else self._timeout_min_s / 2
        self._ask_again_s = now_s + base_s * (1 + self._random())
        return Move.ASK

    @property
    def is_asking(self) -> bool:
        """The others have been asked whether they would vote for this node."""
        return self._asked_term is not None

    def waits_until_s(self, term: int) -> float:
        """Before this time there is nothing to do in `term` though the timer has run out."""
        if self._asked_term == term and not self._is_majority(len(self._granted)):
            return self._ask_again_s
        return -math.inf

    def pre_vote_granted(self, peer: str, asked_term: int) -> bool:
        """A pre-vote has come; whether it completes a majority, so that the timer should be looked at
        again."""
        if asked_term != self._asked_term or peer not in self._peers:
            return False
        self._granted.add(peer)
        return self._is_majority(len(self._granted))

    def counts_vote(self, peer: str, term: int) -> bool:
        """Whether this vote is the first of this peer in this term."""
        if peer not in self._peers:
            return False
        if not self._vote_once:
            return True
        if term != self._voters_term:
            self._voters, self._voters_term = set(), term
        if peer in self._voters:
            return False
        self._voters.add(peer)
        return True

    # -- the voter's side

    def grants_pre_vote(
        self,
        candidate_last: tuple[int, int],
        own_last: tuple[int, int],
        now_s: float,
        leading_since_s: float | None,
    ) -> bool:
        """Whether we would vote for a candidate whose log ends at (term, index) `candidate_last`."""
        return candidate_last >= own_last and not self.is_sticky(now_s, leading_since_s)
