"""A handle as its holder sees it, without I/O: the part that is the same in both fronts."""

from __future__ import annotations

from collections.abc import Mapping

from tenure._handle import State
from tenure._kept import KeptSession, Member
from tenure.answers import Grant, Progress
from tenure.errors import LeaseLost


class Place:
    """Where a handle's lease is kept: in which session, and as which of its members. Both change when a
    parked lease is taken up again."""

    __slots__ = ("member", "session")

    def __init__(self, session: KeptSession, member: Member) -> None:
        self.session = session
        self.member = member


class Reading:
    """What can be read of a handle, at any time and from any thread. Every read looks at the clock."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def _session(self) -> KeptSession:
        return self._place.session

    @property
    def _member(self) -> Member:
        return self._place.member

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The lease as it was granted; several for a set of keys."""
        return tuple(self._member.grants)

    @property
    def key(self) -> str:
        """The key; the first one of a set."""
        return self._member.grants[0].key

    @property
    def owner(self) -> str:
        return self._member.grants[0].owner

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._member.grants[0].metadata

    @property
    def token(self) -> int:
        """The fencing token: present it with every write, wherever that goes. Of a set, the first key's."""
        return self._member.grants[0].token

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each key."""
        return {grant.key: grant.token for grant in self._member.grants}

    @property
    def slot(self) -> int:
        """The slot of a permit; 0 otherwise."""
        return self._member.grants[0].slot

    @property
    def found_progress(self) -> Progress | None:
        """What the holder before had told of its progress, if the lease was handed over or taken up: with
        ``metadata`` the context to go on from. None for a lease that begins anew."""
        return self._member.grants[0].progress

    @property
    def lease_id(self) -> str:
        """What renews, releases and commits; keep it to yourself. Of a set, the first key's."""
        return self._member.grants[0].lease_id

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def state(self) -> State:
        """HELD, AT_RISK (still held; a renewal, or the progress that it demands, is overdue), LOST, RELEASED
        or PARKED, as of now. While a handover or parking is under way it is RELEASED or PARKED already."""
        return self._session.state(self._member)

    @property
    def is_held(self) -> bool:
        """HELD or AT_RISK, as of now."""
        return self.state in (State.HELD, State.AT_RISK)

    @property
    def expires_in(self) -> float:
        """Seconds for which the lease may be believed in if it is not renewed any more; 0 unless held."""
        return self._session.expires_in_s(self._member)

    @property
    def parked_for(self) -> float:
        """Seconds for which the lease certainly stays parked; 0 unless it is."""
        return self._session.parked_for_s(self._member)

    @property
    def lost_reason(self) -> str:
        """Why it is LOST; empty otherwise. ``expired`` also when its own clock said so."""
        return self._member.life.reason if self.state is State.LOST else ""

    def check(self) -> None:
        """Returns if the lease is held now, by the clock of this machine. Raises LeaseLost otherwise. That
        is advice: the moment of checking is not the moment of writing, which is what the token is for."""
        state = self.state
        if state not in (State.HELD, State.AT_RISK):
            raise self._loss()

    def _loss(self) -> LeaseLost:
        reason = self.lost_reason or ("parked" if self.state is State.PARKED else "released")
        return LeaseLost(reason, detail=f"the lease on {self.key!r} is over: {reason}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} token={self.token} {self.state.value}>"
