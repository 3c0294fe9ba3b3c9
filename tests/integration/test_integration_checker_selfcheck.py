"""The checker of histories must accept what is right and refuse every history known to be wrong, for the
right reason."""

from collections.abc import Callable
from typing import Any

import pytest
from check_history import CHECKS, check_history
from history import Call, History, Outcome, outcome_of

Story = Callable[["Book"], None]


class Book:
    """Writes histories by hand: every call takes 0.1 s unless it says otherwise."""

    def __init__(self) -> None:
        self.history = History()

    def call(
        self, at: float, op: str, body: dict[str, Any], status: int, answer: dict[str, Any], took: float = 0.1
    ) -> None:
        outcome: Outcome = outcome_of(status, answer) if status else "unknown"
        self.history.add(Call("p", op, body, "n1", at, at + took, outcome, status, answer))

    def acquire(
        self, at: float, who: str, token: int | None, *, key: str = "k", ttl: int = 10_000, took: float = 0.1,
        expires: int | None = None, lease_id: str | None = None
    ) -> None:  # fmt: skip
        """An acquire by request `who`; token None: no answer came."""
        body = {"request_id": who, "owner": who, "key": key, "ttl_ms": ttl}
        if token is None:
            self.call(at, "acquire", body, 0, {"error": "lost"}, took)
            return
        lease = lease_body(who, token, key, ttl if expires is None else expires, lease_id)
        self.call(at, "acquire", body, 200, {"status": "granted", "lease": lease}, took)

    def waiting(self, at: float, who: str, position: int, key: str = "k") -> None:
        body = {"request_id": who, "owner": who, "key": key, "ttl_ms": 10_000, "wait_ms": 100}
        self.call(at, "acquire", body, 202, {"status": "waiting", "position": position, "ahead": []})

    def refused(self, at: float, who: str, status: int, answer: dict[str, Any], key: str = "k") -> None:
        body = {"request_id": who, "owner": who, "key": key, "ttl_ms": 10_000}
        self.call(at, "acquire", body, status, answer)

    def renew(self, at: float, who: str, token: int, *, key: str = "k", expires: int = 10_000) -> None:
        self.call(
            at, "renew", {"lease_id": f"lease-{who}"}, 200, {"lease": lease_body(who, token, key, expires)}
        )

    def lost(self, at: float, op: str, who: str, reason: str) -> None:
        self.call(at, op, {"lease_id": f"lease-{who}"}, 410, {"code": "lost", "reason": reason})

    def release(self, at: float, who: str, status: int = 200) -> None:
        self.call(
            at, "release", {"lease_id": f"lease-{who}"}, status, {"status": "released"} if status else {}
        )

    def abandon(self, at: float, who: str) -> None:
        self.call(at, "abandon", {"request_id": who}, 200, {"status": "abandoned"})

    def look(self, at: float, who: str | None, token: int = 0, key: str = "k") -> None:
        """A read of the key's lease; who None: not held."""
        if who is None:
            self.call(at, "get_lease", {"key": key}, 404, {"code": "not_held"})
        else:
            self.call(at, "get_lease", {"key": key}, 200, lease_body(who, token, key, 5_000, hidden=True))

    def commit(
        self, at: float, who: str, token: int, op_id: str, revision: int | None, *, mode: str = "current",
        seq: int | None = None, code: str = "", key: str = "k", **more: Any
    ) -> None:  # fmt: skip
        body: dict[str, Any] = {"key": key, "lease_id": f"lease-{who}", "token": token, "mode": mode}
        body |= {"op_id": op_id, "value": f"value of {op_id}", "seq": seq}
        if code:
            self.call(at, "commit", body, 412, {"code": code, **more})
        else:
            self.call(at, "commit", body, 200, {"status": "accepted", "revision": revision})

    def record(self, at: float, op_id: str | None, revision: int = 0, who: str = "a", token: int = 1) -> None:
        if op_id is None:
            self.call(at, "get_record", {"key": "k"}, 404, {"code": "no_record"})
        else:
            shown = {
                "key": "k",
                "owner": who,
                "token": token,
                "revision": revision,
                "value": f"value of {op_id}",
            }
            self.call(at, "get_record", {"key": "k"}, 200, shown)


def lease_body(
    who: str, token: int, key: str, expires: int, lease_id: str | None = None, hidden: bool = False
) -> dict[str, Any]:
    shown = {"key": key, "owner": who, "token": token, "expires_in_ms": expires}
    return (
        shown if hidden else shown | {"lease_id": lease_id or f"lease-{who}", "session_id": f"session-{who}"}
    )


def holder(who: str, token: int, key: str = "k") -> dict[str, Any]:
    return {"code": "held", "holder": lease_body(who, token, key, 5_000, hidden=True)}


def test_an_honest_history_is_accepted() -> None:
    book = Book()
    book.acquire(0, "a", 1)
    book.refused(0.5, "b", 409, holder("a", 1))
    book.waiting(1, "c", 1)
    book.renew(1.5, "a", 1)
    book.commit(2, "a", 1, "op1", 11)
    book.look(2.2, "a", 1)
    book.record(2.4, "op1", 11)
    book.release(3, "a", 0)  # no answer came; asked again
    book.release(3.2, "a")
    book.acquire(3.4, "c", 2, took=0.5)
    book.commit(3.9, "a", 1, "op2", None, code="stale_token", floor=2)
    book.lost(4, "renew", "a", "released")
    book.acquire(5, "d", None, key="other")
    book.acquire(5.5, "d", 3, key="other")
    book.acquire(17, "e", 4)  # c's lease has run out
    book.lost(17.2, "renew", "c", "expired")
    book.abandon(18, "e")
    book.look(18.2, None)
    book.refused(19, "f", 503, {"code": "no_leader"})
    assert check_history(book.history) == []


def token_issued_twice(book: Book) -> None:
    book.acquire(0, "a", 1, key="k")
    book.acquire(1, "b", 1, key="other")


def two_tokens_for_one_request(book: Book) -> None:
    book.acquire(0, "a", None)
    book.acquire(1, "a", 1)
    book.acquire(2, "a", 2, lease_id="lease-a2")


def grant_that_nobody_asked_for(book: Book) -> None:
    book.look(0, "ghost", 7)


def refused_as_not_executed_but_granted(book: Book) -> None:
    book.refused(0, "a", 503, {"code": "no_leader"})
    book.look(1, "a", 7)


def waiter_that_was_not_executed(book: Book) -> None:
    book.refused(0, "a", 503, {"code": "no_leader"})
    book.call(1, "queue", {"key": "k"}, 200, {"holders": [], "waiters": [{"owner": "a"}]})


def token_falls(book: Book) -> None:
    book.acquire(0, "a", 5, key="k")
    book.acquire(1, "b", 4, key="other")


def token_falls_between_a_waiting_answer_and_its_grant(book: Book) -> None:
    book.waiting(0, "b", 1)
    book.acquire(1, "a", 5, key="other")
    book.waiting(2, "b", 1)
    book.acquire(3, "b", 4)


def two_holders(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.acquire(1, "b", 2)


def grant_before_an_acknowledged_renewal_runs_out(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.renew(5, "a", 1)
    book.acquire(12, "b", 2)


def grant_although_the_release_was_answered_not_executed(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.release(1, "a", 503)
    book.acquire(2, "b", 2)


def renewed_after_its_successor(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.release(0.5, "a", 0)
    book.acquire(1, "b", 2)
    book.renew(2, "a", 1)


def old_holder_shown_after_its_successor(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.release(0.5, "a", 0)
    book.acquire(1, "b", 2)
    book.look(2, "a", 1)


def late_commit_accepted(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.release(0.5, "a", 0)
    book.acquire(1, "b", 2)
    book.commit(2, "a", 1, "op1", 11)


def shown_after_its_release(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.release(1, "a")
    book.look(2, "a", 1)


def refused_by_a_released_lease(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.release(1, "a")
    book.refused(2, "b", 409, holder("a", 1))


def granted_although_abandoned(book: Book) -> None:
    book.acquire(0, "a", None)
    book.abandon(1, "a")
    book.acquire(2, "a", 1)


def acknowledged_grant_forgotten(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.lost(2, "renew", "a", "unknown")


def expired_too_early(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.renew(5, "a", 1)
    book.lost(11, "renew", "a", "expired")


def released_by_nobody(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.lost(1, "renew", "a", "released")


def session_expired_too_early(book: Book) -> None:
    session = {"session_id": "s", "expires_in_ms": 10_000}
    book.call(0, "open_session", {"owner": "p", "ttl_ms": 10_000}, 200, {"session": session})
    book.call(1, "renew", {"session_id": "s"}, 410, {"code": "session_expired"})


def renewal_shortened(book: Book) -> None:
    book.acquire(0, "a", 1, expires=10_000)
    book.renew(1, "a", 1, expires=5_000)


def not_held_although_held(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.look(1, None)


def held_by_a_grant_of_another_key(book: Book) -> None:
    book.acquire(0, "a", 1, key="other")
    body = {"request_id": "b", "owner": "b", "key": "k", "ttl_ms": 10_000}
    book.call(1, "acquire", body, 409, holder("a", 1, key="other"))


def waiter_overtaken(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.waiting(1, "b", 1)
    book.waiting(2, "c", 2)
    book.release(3, "a", 0)
    book.acquire(3.2, "c", 2)
    book.release(4, "c")
    book.acquire(4.2, "b", 3)


def waiter_forgotten(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.waiting(1, "b", 1)
    book.release(2, "a")
    book.acquire(3, "c", 2)
    book.waiting(4, "b", 1)


def place_got_worse(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.waiting(1, "b", 1)
    book.waiting(2, "b", 3)


def once_token_used_twice(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", 11, mode="once")
    book.commit(2, "a", 1, "op2", 12, mode="once")


def sequence_replayed(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", 11, mode="sequence", seq=2)
    book.commit(2, "a", 1, "op2", 12, mode="sequence", seq=2)


def revision_issued_twice(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", 11)
    book.commit(2, "a", 1, "op2", 11)


def revision_fell(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", 12)
    book.commit(2, "a", 1, "op2", 11)


def retried_commit_answered_differently(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", 11)
    book.commit(2, "a", 1, "op1", 12)


def not_live_although_live(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", None, code="not_live", floor=1)


def stale_although_nobody_followed(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", None, code="stale_token", floor=2)


def used_by_nobody(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", None, code="token_used", mode="once", floor=1)


def record_lost(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", 11)
    book.record(2, None)


def record_older_than_acknowledged(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.commit(1, "a", 1, "op1", 11)
    book.commit(2, "a", 1, "op2", 12)
    book.record(3, "op1", 11)


def record_that_nobody_wrote(book: Book) -> None:
    book.acquire(0, "a", 1)
    book.record(1, "ghost", 11)


def answer_that_no_server_may_give(book: Book) -> None:
    book.refused(0, "a", 500, {"code": "internal"})


KNOWN_BAD: list[tuple[Story, str]] = [
    (token_issued_twice, "no_impossible_answers"),
    (answer_that_no_server_may_give, "no_impossible_answers"),
    (two_tokens_for_one_request, "one_token_a_request"),
    (grant_that_nobody_asked_for, "one_token_a_request"),
    (refused_as_not_executed_but_granted, "one_token_a_request"),
    (waiter_that_was_not_executed, "one_token_a_request"),
    (token_falls, "tokens_rise"),
    (token_falls_between_a_waiting_answer_and_its_grant, "tokens_rise"),
    (two_holders, "one_holder_at_a_time"),
    (grant_before_an_acknowledged_renewal_runs_out, "one_holder_at_a_time"),
    (grant_although_the_release_was_answered_not_executed, "one_holder_at_a_time"),
    (renewed_after_its_successor, "one_holder_at_a_time"),
    (old_holder_shown_after_its_successor, "one_holder_at_a_time"),
    (late_commit_accepted, "one_holder_at_a_time"),
    (shown_after_its_release, "the_ended_stay_ended"),
    (refused_by_a_released_lease, "the_ended_stay_ended"),
    (granted_although_abandoned, "the_ended_stay_ended"),
    (acknowledged_grant_forgotten, "losses_are_true"),
    (expired_too_early, "losses_are_true"),
    (released_by_nobody, "losses_are_true"),
    (session_expired_too_early, "losses_are_true"),
    (renewal_shortened, "renewals_last"),
    (not_held_although_held, "refusals_are_true"),
    (held_by_a_grant_of_another_key, "refusals_are_true"),
    (waiter_overtaken, "queues_keep_their_order"),
    (waiter_forgotten, "queues_keep_their_order"),
    (place_got_worse, "queues_keep_their_order"),
    (once_token_used_twice, "guards_hold"),
    (sequence_replayed, "guards_hold"),
    (revision_issued_twice, "guards_hold"),
    (revision_fell, "guards_hold"),
    (retried_commit_answered_differently, "guards_hold"),
    (not_live_although_live, "guards_hold"),
    (stale_although_nobody_followed, "guards_hold"),
    (used_by_nobody, "guards_hold"),
    (record_lost, "records_are_kept"),
    (record_older_than_acknowledged, "records_are_kept"),
    (record_that_nobody_wrote, "records_are_kept"),
]


@pytest.mark.parametrize(("story", "check"), KNOWN_BAD, ids=[story.__name__ for story, _ in KNOWN_BAD])
def test_a_history_known_to_be_wrong_is_refused(story: Story, check: str) -> None:
    book = Book()
    story(book)
    violations = check_history(book.history)
    assert any(violation.startswith(f"{check}: ") for violation in violations), violations


def test_every_check_has_a_history_that_it_refuses() -> None:
    assert {check.__name__ for check in CHECKS} == {check for _, check in KNOWN_BAD}
