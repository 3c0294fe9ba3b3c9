"""Random histories for the lease machine, written as bytes so that they shrink.

A script is a list of steps of STEP_BYTES bytes. Each step is read as one command by looking at the
model: most bytes pick a name, a deadline or a token that means something at that moment, some pick one
that does not. A step that begins with zero does nothing, and zeros pick the first and plainest of every
choice; so Hypothesis shrinks a failing script to the few steps that matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from model_lease import Model
from model_state import (
    CLAIM_WINDOW_MS,
    KEY_MEMORY_MS,
    REQUEST_MEMORY_MS,
    WAITER_SILENCE_MS,
    Row,
    matching,
    waiter_item_id,
)

T = TypeVar("T")

STEP_BYTES = 24
STEPS = 250

TENANTS = ["acme", "acme", "acme", "zebra"]
KEYS = ["k1", "k2", "k1", "käse/3"]
PLACES = [
    (["acme"], ["k1"], 60, 186),
    (["acme"], ["k1", "k2"], 60, 186),
    (["acme"], KEYS, 95, 238),
    (TENANTS, KEYS, 60, 186),
]
"""Where a history plays: on one key, so that long queues form, or on several; how many of 100 acquires are
made in an explicit session, and in how many of 256 steps time stands still. With nearly all of both, sessions
come to wait for one another."""

MODES = [
    [("exclusive", 1)],
    [("exclusive", 1), ("shared", 1), ("shared", 1)],
    [("permit", 2)],
    [("exclusive", 1), ("shared", 1), ("permit", 2), ("permit", 1), ("permit", 2), ("permit", 0)],
]
"""In which modes a history's keys are asked for."""

SETS = [0, 0, 25, 60]
"""How many of 100 acquires in a history ask for several keys."""

OWNERS = ["ann", "bob", "cy"]
REQUESTS = ["r0", "r1", "r2", "r3"]
TTLS_MS = [10_000, 3_000, 60_000, 30_000, 1_000, 200_000]
SESSION_TTLS_MS = [60_000, 10_000, 200_000, 3_000]
GRACES_MS = [0, 0, 0, 2_000, 20_000]
METADATA: list[dict[str, str]] = [{}, {"run": "7"}]
LONG_STEPS_MS = [1_000, 3_000, 10_000, CLAIM_WINDOW_MS, WAITER_SILENCE_MS, REQUEST_MEMORY_MS]


def scripts(steps: int = STEPS) -> st.SearchStrategy[list[bytes]]:
    """Histories of so many steps, of which some may do nothing."""
    return st.lists(st.binary(min_size=STEP_BYTES, max_size=STEP_BYTES), min_size=steps, max_size=steps)


class Choices:
    """The bytes of one step, spent one by one."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        value = self.data[self.at] if self.at < len(self.data) else 0
        self.at += 1
        return value

    def pick(self, options: Sequence[T]) -> T:
        return options[self.byte() % len(options)]

    def chance(self, percent: int) -> bool:
        """True with about this chance; false for a zero byte."""
        return self.byte() * 100 >= (100 - percent) * 256


class Writer:
    """Turns steps into stamped commands that fit the model's present state."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.minted = 0
        self.now_ms = 0
        self.keys = KEYS
        self.modes = MODES[0]
        self.set_percent = 0
        self.progress_percent = 0
        self.explicit_percent = 60
        self.unhurried = 186
        self.session_ids: dict[str, list[str]] = {}
        self.places: tuple[list[str], list[str], int, int] | None = None

    def command(self, data: bytes) -> tuple[int, Row] | None:
        """The stamp and the command of one step; None for a step that does nothing."""
        choices = Choices(data)
        number = choices.byte()
        if number == 0:
            return None
        if self.places is None:
            self.places = PLACES[data[-1] % len(PLACES)]
            self.modes = MODES[data[-2] % len(MODES)]
            self.set_percent = SETS[data[-3] % len(SETS)]
            self.progress_percent = [0, 40][data[-4] % 2]
        tenants, self.keys, self.explicit_percent, self.unhurried = self.places
        at_ms = self.stamp(choices)
        self.now_ms = max(at_ms, self.model.time)
        tenant = choices.pick(tenants)
        command = OPERATIONS[number % len(OPERATIONS)](self, choices, tenant)
        self.minted += 1
        return at_ms, {"tenant": tenant, **command, "wall_ms": 1_700_000_000_000 + self.minted}

    def mint(self, letter: str) -> str:
        return f"{letter}{self.minted}"

    # Time.

    def stamp(self, choices: Choices) -> int:
        now = self.model.time
        number = choices.byte()
        if number < self.unhurried:
            return now
        if number < 230:
            return now + 1 + choices.byte() * 4
        if number < 246:
            ahead = sorted({at for at in self.deadlines() if at > now})[:4]
            return choices.pick(ahead) + choices.pick([0, -1, 1]) if ahead else now
        if number < 249:
            return now + choices.pick(LONG_STEPS_MS)
        if number < 254:
            return max(0, now - choices.pick([1, 50, 5_000, 1_000_000]))
        if choices.chance(75):
            return now + REQUEST_MEMORY_MS + choices.pick([0, -1, 1])
        return now + KEY_MEMORY_MS + choices.pick([0, -1, 1]) if choices.chance(40) else now + 1

    def deadlines(self) -> list[int]:
        """Every moment at which something may change by itself."""
        model = self.model
        found = [row["deadline_ms"] for row in model.sessions]
        found += [row["claim_deadline_ms"] for row in model.leases]
        found += [row["progress_until_ms"] for row in model.leases]
        found += [row["poll_deadline_ms"] for row in model.waiters]
        found += [row["blocked_until_ms"] for row in model.keys]
        found += [row["idle_since_ms"] + KEY_MEMORY_MS for row in model.keys if row["idle_since_ms"] >= 0]
        memories = [row["ended_ms"] for row in model.ended]
        memories += [row["at_ms"] for row in model.given_up + model.answers]
        return found + [at + REQUEST_MEMORY_MS for at in memories]

    # Names.

    def rows(self, table: list[Row], tenant: str) -> list[Row]:
        return [row for row in table if row["tenant"] == tenant]

    def some_lease_id(self, choices: Choices, tenant: str) -> str:
        """Mostly of a present lease; else of one that was, that may come, of another tenant, or of none."""
        present = self.rows(self.model.leases, tenant)
        others = self.rows(self.model.ended, tenant) + self.rows(self.model.waiters, tenant)
        others += self.model.leases
        if present and not choices.chance(25):
            return str(choices.pick(present)["lease_id"])
        if not others:
            return "nobody's"
        row = choices.pick(others)
        return str(row["lease_id"] if "lease_id" in row else row["lease_ids"][0])

    def some_session_id(self, choices: Choices, tenant: str) -> str:
        """Mostly an explicit session that is there; else one that was."""
        present = [row["session_id"] for row in self.rows(self.model.sessions, tenant) if not row["private"]]
        if present and not choices.chance(15):
            return choices.pick(present)
        return choices.pick((self.session_ids.get(tenant) or ["no-session"])[-4:])

    def some_session_to_keep(self, choices: Choices, tenant: str) -> str:
        """The same, or a private session that holds, or waits, or is over."""
        model = self.model
        private = [row["session_id"] for row in self.rows(model.sessions, tenant) if row["private"]]
        private += [row["lease_id"] for row in self.rows(model.ended, tenant)][-2:]
        if private and choices.chance(30):
            return choices.pick(private)
        return self.some_session_id(choices, tenant)

    # Commands.

    def acquire(self, choices: Choices, tenant: str) -> Row:
        known = self.asked(tenant)
        mode, slots = choices.pick(self.modes)
        command = {
            "op": "acquire",
            "wait": not choices.chance(35),
            "owner": choices.pick(OWNERS),
            "keys": self.some_keys(choices),
            "session_id": None,
            "ttl_ms": None,
            "request_id": self.mint("q"),
            "remember": True,
            "lease_ids": [],
            "mode": mode,
            "slots": slots,
            "grace_ms": choices.pick(GRACES_MS),
            "if_held": choices.pick(["return", "return", "conflict"]),
            "metadata": choices.pick(METADATA),
            "progress_ms": 0,
        }
        how = choices.byte()
        if how >= 170 and known:
            row = choices.pick(known)
            command |= {"request_id": row["request_id"], "session_id": row["scope"] or None}
            command["remember"] = row["remember"]
            if not choices.chance(10):
                command["keys"] = row.get("keys") or row.get("set") or [row["key"]]
        elif choices.chance(self.explicit_percent) and (self.session_ids.get(tenant) or choices.chance(10)):
            command["session_id"] = self.some_session_id(choices, tenant)
            held = [row["key"] for row in self.rows(self.model.leases, tenant)]
            if held and choices.chance(40):
                command["keys"] = [choices.pick(held)]
            waits = matching(self.model.waiters, tenant=tenant, session_id=command["session_id"])
            if waits and choices.chance(10):
                command["keys"] = [choices.pick(choices.pick(waits)["keys"])]
        if how % 8 == 7 and how < 170:
            command["request_id"] = choices.pick(REQUESTS)
        elif how % 8 == 6 and how < 170:
            command["remember"] = False
        if command["session_id"] is None:
            command["ttl_ms"] = choices.pick(TTLS_MS)
        elif how < 170 and choices.chance(25):
            self.wait_for_one_who_waits(choices, tenant, command)
        if choices.chance(self.progress_percent):
            command["progress_ms"] = choices.pick([5_000, 1_000, 20_000])
        numbers = range(len(command["keys"]))
        command["lease_ids"] = [self.mint("l") + (f".{number}" if number else "") for number in numbers]
        return command

    def some_keys(self, choices: Choices) -> list[str]:
        """One key, or in some histories several."""
        key = choices.pick(self.keys)
        others = sorted(set(KEYS) - {key})
        if not choices.chance(self.set_percent):
            return [key]
        second = choices.pick(others)
        third = [other for other in others if other != second and choices.chance(30)]
        return [key, second, *third]

    def wait_for_one_who_waits(self, choices: Choices, tenant: str, command: Row) -> None:
        """Let a session ask for what another holds that waits itself; so circles come about."""
        waiting = {row["session_id"] for row in self.rows(self.model.waiters, tenant)}
        rows = [row for row in self.rows(self.model.leases, tenant) if row["session_id"] in waiting]
        if rows:
            row = choices.pick(rows)
            state = self.model.key(tenant, row["key"])
            command |= {"keys": [row["key"]], "wait": True}
            if row["mode"] == "permit" and state is not None:
                command |= {"mode": "permit", "slots": state["slots"]}

    def asked(self, tenant: str) -> list[Row]:
        """The acquires that may be asked again. One that need not be remembered is not asked after its
        end, for then either answer is right."""
        model = self.model
        found = []
        for row in self.rows(model.waiters, tenant) + self.rows(model.leases, tenant):
            scope = row["scope"] if "scope" in row else "" if row["private"] else row["session_id"]
            if row["remember"] or row in model.waiters or model.deadline(row) > self.now_ms:
                found.append({**row, "scope": scope})
        found += [row for row in self.rows(model.ended, tenant) if row["remember"]][-4:]
        found += [{**row, "key": KEYS[0], "remember": True} for row in self.rows(model.given_up, tenant)][-2:]
        return found

    def claim(self, choices: Choices, tenant: str) -> Row:
        open_ids = [
            row["lease_id"] for row in self.rows(self.model.leases, tenant) if row["claim_deadline_ms"]
        ]
        if open_ids and not choices.chance(20):
            return {"op": "claim", "lease_id": choices.pick(open_ids)}
        return {"op": "claim", "lease_id": self.some_lease_id(choices, tenant)}

    def renew(self, choices: Choices, tenant: str) -> Row:
        command: Row = {"op": "renew", "lease_id": None, "session_id": None, "ttl_ms": None}
        command["progress"] = None
        if choices.chance(40):
            return self.tell_progress(choices, tenant, command)
        if choices.chance(25):
            command["ttl_ms"] = choices.pick(TTLS_MS)
        if choices.chance(35):
            command["session_id"] = self.some_session_to_keep(choices, tenant)
        else:
            command["lease_id"] = self.some_lease_id(choices, tenant)
        return command

    def tell_progress(self, choices: Choices, tenant: str, command: Row) -> Row:
        """Something new, or what was said before."""
        command["lease_id"] = self.some_lease_id(choices, tenant)
        counter = choices.pick([0, 1, self.minted])
        command["progress"] = {"step": choices.pick(["plan", "write"]), "text": "", "counter": counter}
        told = [row for row in self.rows(self.model.leases, tenant) if row["progress"] is not None]
        if told and choices.chance(40):
            row = choices.pick(told)
            command["lease_id"] = row["lease_id"]
            if choices.chance(60):
                command["progress"] = {name: row["progress"][name] for name in ("step", "text", "counter")}
        if choices.chance(5):
            command |= {"lease_id": None, "session_id": self.some_session_to_keep(choices, tenant)}
        return command

    def release(self, choices: Choices, tenant: str) -> Row:
        lease_id = self.some_lease_id(choices, tenant)
        return {"op": "release", "lease_id": lease_id, "whole_set": choices.chance(50)}

    def abandon(self, choices: Choices, tenant: str) -> Row:
        known = self.asked(tenant)
        command = {"op": "abandon", "poll_deadline_ms": None}
        if known and not choices.chance(15):
            row = choices.pick(known)
            command |= {"request_id": row["request_id"], "session_id": row["scope"] or None}
            if choices.chance(40):
                seen_ms = row.get("poll_deadline_ms", self.now_ms + WAITER_SILENCE_MS)
                command["poll_deadline_ms"] = seen_ms - choices.pick([0, 0, 1])
            return command
        session_id = self.some_session_id(choices, tenant) if choices.chance(50) else None
        return command | {"request_id": choices.pick(REQUESTS), "session_id": session_id}

    def break_(self, choices: Choices, tenant: str) -> Row:
        return {"op": "break_", "key": choices.pick(self.keys), "reason": "stuck", "actor": "operator"}

    def resize(self, choices: Choices, tenant: str) -> Row:
        """Mostly of a pool that is in use."""
        pools = [row["key"] for row in self.rows(self.model.leases, tenant) if row["mode"] == "permit"]
        waiters = [row for row in self.rows(self.model.waiters, tenant) if row["mode"] == "permit"]
        pools += [key for row in waiters for key in row["keys"]]
        key = choices.pick(pools) if pools and not choices.chance(10) else choices.pick(self.keys)
        return {"op": "resize", "key": key, "slots": choices.pick([2, 1, 3, 4]), "actor": "operator"}

    def commit(self, choices: Choices, tenant: str) -> Row:
        model = self.model
        answered = self.rows(model.answers, tenant)
        if answered and choices.chance(12):
            return self.commit_again(choices, choices.pick(answered)["asked"])
        named = self.rows(model.leases, tenant) or self.rows(model.ended, tenant)
        if choices.chance(30):
            named = self.rows(model.ended, tenant) or named
        row = choices.pick(named) if named else {"key": KEYS[0], "token": 1, "lease_id": "nobody's"}
        key = row["key"] if not choices.chance(10) else choices.pick(self.keys)
        slot = row.get("slot", 0)
        kept = model.key(tenant, key) or {"guards": {}, "guard_mode": None}
        state = {"floor": 0, "last_seq": 0, "guard_mode": kept["guard_mode"]} | kept["guards"].get(slot, {})
        token, lease_id = row["token"], row["lease_id"]
        doubt = choices.byte()
        if doubt >= 236:
            token = max(1, choices.pick([token - 1, token + 1, state["floor"], state["floor"]]))
        elif doubt >= 216:
            token, lease_id = state["floor"], self.some_lease_id(choices, tenant)
        elif doubt >= 200:
            lease_id = "nobody's"
        mode = state["guard_mode"] or choices.pick(["current", "once", "sequence"])
        if choices.chance(8):
            mode = choices.pick(["current", "once", "sequence"])
        seq = max(0, state["last_seq"] + choices.pick([1, 0, 2, -1])) if mode == "sequence" else None
        how = choices.byte()
        if how >= 250:
            seq = 1 if seq is None else None
        record = model.record(tenant, key)
        present = record["revision"] if record else 0
        return {
            "op": "commit",
            "key": key,
            "slot": 1 - min(slot, 1) if how == 249 else slot,
            "lease_id": lease_id,
            "token": token,
            "mode": mode,
            "seq": seq,
            "op_id": [None, None, "o1", "o2"][how % 4],
            "require_live": how % 8 < 5,
            "if_revision": [None, None, None, present, present, 0, present + 1][how % 7],
            "value": [b"v%d" % self.minted, b"", None][how % 3],
            "binary": how % 2 == 0,
            "digest": ["", "sha256:0"][how % 2],
        }

    def commit_again(self, choices: Choices, asked: Row) -> Row:
        """A commit whose op_id was used: as it was, or with one thing changed."""
        if not choices.chance(50):
            return dict(asked)
        changes = [
            {"value": b"another"},
            {"lease_id": "nobody's"},
            {"token": asked["token"] + 1},
            {"require_live": not asked["require_live"]},
            {"if_revision": 1 if asked["if_revision"] is None else None},
            {"digest": "sha256:1"},
            {"slot": 1 - asked["slot"]},
            {"mode": "sequence", "seq": 77},
        ]
        return {**asked, **choices.pick(changes)}

    def delete_record(self, choices: Choices, tenant: str) -> Row:
        records = self.rows(self.model.records, tenant)
        row = choices.pick(records) if records else {"key": KEYS[0], "revision": 0}
        if_revision = choices.pick([None, row["revision"], row["revision"] + 1, 0])
        return {"op": "delete_record", "key": row["key"], "if_revision": if_revision}

    def open_session(self, choices: Choices, tenant: str) -> Row:
        opened = self.session_ids.setdefault(tenant, [])
        present = [row for row in self.rows(self.model.sessions, tenant) if not row["private"]]
        session_id = self.mint("s")
        if len(present) >= 4 or (opened and choices.chance(15)):
            session_id = choices.pick(opened[-4:])
        else:
            opened.append(session_id)
        return {
            "op": "open_session",
            "session_id": session_id,
            "owner": choices.pick(OWNERS),
            "ttl_ms": choices.pick(SESSION_TTLS_MS),
            "metadata": choices.pick(METADATA),
        }

    def close_session(self, choices: Choices, tenant: str) -> Row:
        session_id = self.some_session_to_keep(choices, tenant)
        if choices.chance(50):
            session_id = self.busiest_session(tenant) or session_id
        return {"op": "close_session", "session_id": session_id}

    def busiest_session(self, tenant: str) -> str | None:
        """The explicit session that holds and waits for most."""
        rows = self.rows(self.model.leases, tenant) + self.rows(self.model.waiters, tenant)
        present = [row["session_id"] for row in self.rows(self.model.sessions, tenant) if not row["private"]]
        busy = {name: sum(row["session_id"] == name for row in rows) for name in present}
        return max(busy, key=lambda name: busy[name]) if busy else None

    def expire(self, choices: Choices, tenant: str) -> Row:
        """The reaper's batch: what is due, or a few items that are not, no longer, or not quite."""
        items = self.expirable()
        if not choices.chance(50):
            now = self.model.time
            return {"op": "expire", "items": [item for item in items if item["deadline_ms"] <= now][:20]}
        chosen = [dict(choices.pick(items)) for _ in range(1 + choices.byte() % 3)] if items else []
        for item in chosen:
            if choices.chance(35):
                item["deadline_ms"] += choices.pick([-1, 1, -1_000, -10_000])
            if choices.chance(10):
                item["id"] = choices.pick(["", "nobody's", "0:", "9:q1", "-1:q1", "1:" + item["id"]])
        return {"op": "expire", "items": chosen}

    def expirable(self) -> list[Row]:
        model = self.model
        found = [("session", row["tenant"], row["session_id"], row["deadline_ms"]) for row in model.sessions]
        for row in model.leases:
            found.append(("claim", row["tenant"], row["lease_id"], row["claim_deadline_ms"]))
            found.append(("progress", row["tenant"], row["lease_id"], row["progress_until_ms"]))
        for row in model.waiters:
            found.append(("waiter", row["tenant"], waiter_item_id(row), row["poll_deadline_ms"]))
        for row in model.keys:
            found.append(("grace", row["tenant"], row["key"], row["blocked_until_ms"]))
        return [dict(zip(("kind", "tenant", "id", "deadline_ms"), item, strict=True)) for item in found]

    def handover(self, choices: Choices, tenant: str) -> Row:
        lease_id, to = self.some_lease_id(choices, tenant), self.some_session_id(choices, tenant)
        given = [row for row in self.rows(self.model.ended, tenant) if row["reason"] == "handed_over"]
        if given and choices.chance(15):
            past = choices.pick(given)
            heirs = [row for row in self.rows(self.model.leases, tenant) if row["key"] == past["key"]]
            lease_id, to = past["lease_id"], choices.pick(heirs)["session_id"] if heirs else to
        elif choices.chance(75):
            lease_id, to = self.wanted_by_who_waits(choices, tenant) or (lease_id, to)
        return {
            "op": "handover",
            "lease_id": lease_id,
            "to_session_id": to,
            "new_lease_id": self.mint("h"),
        }

    def wanted_by_who_waits(self, choices: Choices, tenant: str) -> tuple[str, str] | None:
        """A lease, and a session that waits for one who waits for that lease; so circles come about."""
        leases = self.rows(self.model.leases, tenant)
        waiters = [row for row in self.rows(self.model.waiters, tenant) if not row["private"]]
        found = [
            (lease["lease_id"], last["session_id"])
            for first in waiters
            for lease in leases
            for between in leases
            for last in waiters
            if lease["key"] in first["keys"] and between["session_id"] == first["session_id"]
            if between["key"] in last["keys"]
        ]
        return choices.pick(found) if found else None

    def park(self, choices: Choices, tenant: str) -> Row:
        lease_id = self.some_lease_id(choices, tenant)
        limit_ms = choices.pick([100_000, 5_000, 250_000])
        token = self.some_token(choices, tenant, lease_id)
        return {"op": "park", "lease_id": lease_id, "limit_ms": limit_ms, "token": token}

    def some_token(self, choices: Choices, tenant: str, lease_id: str) -> int | None:
        """None, the lease's own, or one of before."""
        lease = self.model.lease(tenant, lease_id)
        if lease is None:
            return choices.pick([None, 1])
        return choices.pick([None, lease["token"], lease["token"], max(1, lease["token"] - 1)])

    def unpark(self, choices: Choices, tenant: str) -> Row:
        parked = [row["lease_id"] for row in self.rows(self.model.leases, tenant) if row["parked_ttl_ms"]]
        lease_id = (
            choices.pick(parked) if parked and not choices.chance(10) else self.some_lease_id(choices, tenant)
        )
        command: Row = {"op": "unpark", "lease_id": lease_id, "session_id": None, "ttl_ms": None}
        command["token"] = self.some_token(choices, tenant, lease_id)
        if choices.chance(50):
            command["session_id"] = self.some_session_id(choices, tenant)
        elif choices.chance(50):
            command["ttl_ms"] = choices.pick(TTLS_MS)
        return command

    def tick(self, choices: Choices, tenant: str) -> Row:
        return {"op": "tick"}


def _weighted(*pairs: tuple[Callable[[Writer, Choices, str], Row], int]) -> list[Callable[..., Row]]:
    return [make for make, weight in pairs for _ in range(weight)]


OPERATIONS = _weighted(
    (Writer.tick, 1),
    (Writer.acquire, 20),
    (Writer.claim, 5),
    (Writer.renew, 4),
    (Writer.release, 4),
    (Writer.abandon, 2),
    (Writer.break_, 1),
    (Writer.resize, 1),
    (Writer.commit, 8),
    (Writer.delete_record, 1),
    (Writer.open_session, 4),
    (Writer.close_session, 2),
    (Writer.expire, 4),
    (Writer.handover, 3),
    (Writer.park, 2),
    (Writer.unpark, 3),
)
"""What a step's first byte picks: what more depends on more often, the plainest first."""


def describe(at_ms: int, command: Row) -> str:
    """One line for a failing history."""
    shown: list[Any] = [
        f"{name}={value!r}" for name, value in command.items() if name not in ("op", "wall_ms")
    ]
    return f"at {at_ms:>9} {command['op']}({', '.join(shown)})"
