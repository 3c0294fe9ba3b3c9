"""Plays the scenario texts: a command a block, and beneath it what the machine answers.

    acquire build owner=A ttl=30s request=ra lease=a
    ----
    granted a: build to A, token 1, 30000 ms
      @1 granted build A token 1

A block is a command, a line of dashes and the expected output up to the next empty line. Lines that begin
with # are comments. The result comes first, then the events with their revisions. Commands, with their
arguments in any order:

    acquire KEY[,KEY…] owner= [ttl= | session=] request= lease= [wait] [grace=] [if_held=conflict] [mode=
    [slots=]] claim LEASE · renew LEASE|session=S [ttl=] · release LEASE [whole] · abandon REQUEST [session=]
    handover LEASE to=S new=LEASE · park LEASE limit= · unpark LEASE [session=|ttl=]
    break KEY [reason=] · commit KEY lease= token= mode= [slot=] [seq=] [op=] [value=] [if_revision=] [late]
    open SESSION owner= ttl= · close SESSION · delete-record KEY · tick
    wait TIME           the leader's clock runs on
    change-leader [lost=TIME]   snapshot, load, go on from the last stamp; the time lost does not count
    look [ahead=TIME]   the reaper looks at what is due; expire then proposes that, whatever came between
    expire              propose what the reaper has seen; else it looks and proposes at once
    show KEY            holder, queue, guard and record, as the table's queries tell
"""

from collections.abc import Callable
from typing import Any

from lease_world import TENANT, World

from tenure_cluster.lease import results
from tenure_cluster.lease.commands import ExpireItem

RULE = "----"


def milliseconds(text: str) -> int:
    """'250ms', '30s' or '2m' as milliseconds."""
    for unit, factor in (("ms", 1), ("s", 1_000), ("m", 60_000)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    raise ValueError(f"no unit in {text!r}")


class ScenarioPlayer:
    """One scenario on its way."""

    def __init__(self) -> None:
        self.world = World()
        self.seen: list[ExpireItem] | None = None

    def play(self, text: str) -> str:
        """The scenario with its output as it is now."""
        played: list[str] = []
        skipping = False
        for line in text.splitlines():
            if not line:
                skipping = False
            if line == RULE:
                command = played[-1]
                played += [RULE, *self.run(command)]
                skipping = True
            elif not skipping:
                played.append(line)
        return "\n".join(played) + "\n"

    def run(self, line: str) -> list[str]:
        name, *words = line.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        command: Callable[..., list[str]] = getattr(self, "do_" + name.replace("-", "_"))
        return command(*plain, **named)

    def told(self, result: results.Result) -> list[str]:
        events = [
            f"  @{event.revision} {event.kind} {event.key} {event.owner}"
            + (f" token {event.token}" if event.token else "")
            + (f" ({event.detail})" if event.detail else "")
            for event in self.world.events
        ]
        return [self.words(result), *events]

    def words(self, result: results.Result) -> str:
        left = self.left
        match result:
            case results.Granted(grants=grants, replayed=replayed, claimed=claimed):
                how = "replayed" if replayed else "granted"
                leases = ", ".join(self.lease_words(grant) for grant in grants)
                return f"{how} {leases}" + ("" if claimed else ", to be claimed")
            case results.Waiting():
                held_by = ", ".join(self.holder_words(holder) for holder in result.holders) or "nobody"
                return f"waiting at {result.position}, held by {held_by}, ahead {result.ahead}"
            case results.Held(holders=[]):
                return f"refused: grace period for {left(result.blocked_until_ms)}"
            case results.Held():
                held_by = ", ".join(self.holder_words(holder) for holder in result.holders)
                return f"refused: held by {held_by}, {result.waiters} waiting"
            case results.HandedOver():
                return f"handed over: {self.lease_words(result.grant)}"
            case results.Parked():
                return f"parked {self.lease_words(result.grant)}"
            case results.Unparked():
                return f"unparked {self.lease_words(result.grant)}"
            case results.Renewed():
                return f"renewed {self.lease_words(result.grant)}"
            case results.SessionIs():
                session = result.session
                return f"session {session.session_id} of {session.owner}: {result.leases} leases, " + left(
                    session.deadline_ms
                )
            case results.CommitRefused():
                used = f"last token {result.last_token}, last seq {result.last_seq}"
                return f"refused: {result.code}, floor {result.floor}, {used}, record at {result.revision}"
            case results.Committed():
                return f"accepted at revision {result.revision}"
            case _:
                name = type(result).__name__
                told = [field for field in result.__struct_fields__ if field != "detail" or result.detail]
                fields = [f"{field}={getattr(result, field)!r}" for field in told]
                return " ".join([name, *fields])

    def left(self, deadline_ms: int) -> str:
        return f"{deadline_ms - self.world.now_ms} ms"

    def lease_words(self, grant: results.Grant) -> str:
        lease = grant.lease
        deadline_ms = min(grant.session.deadline_ms, lease.claim_deadline_ms or grant.session.deadline_ms)
        how = {"exclusive": "", "shared": " shared", "permit": f" slot {lease.slot}"}[lease.mode]
        return (
            f"{lease.lease_id}: {lease.key}{how} to {lease.owner}, token {lease.token}, "
            f"{self.left(deadline_ms)}"
        )

    def holder_words(self, holder: results.Holder) -> str:
        return f"{holder.owner} (token {holder.token}, {self.left(holder.deadline_ms)})"

    # Commands

    def do_acquire(self, key: str, *flags: str, **named: str) -> list[str]:
        numbers = ("ttl", "grace", "slots")
        options: dict[str, Any] = {name: named[name] for name in named if name not in numbers}
        if "slots" in named:
            options["slots"] = int(named["slots"])
        if "ttl" in named:
            options["ttl_ms"] = milliseconds(named["ttl"])
        if "grace" in named:
            options["grace_ms"] = milliseconds(named["grace"])
        return self.told(self.world.acquire(keys=key.split(","), wait="wait" in flags, **options))

    def do_claim(self, lease: str) -> list[str]:
        return self.told(self.world.claim(lease))

    def do_renew(self, lease: str | None = None, session: str | None = None, ttl: str = "") -> list[str]:
        ttl_ms = milliseconds(ttl) if ttl else None
        return self.told(self.world.renew(lease, session=session, ttl_ms=ttl_ms))

    def do_handover(self, lease: str, to: str, new: str) -> list[str]:
        return self.told(self.world.handover(lease, to, new))

    def do_park(self, lease: str, limit: str) -> list[str]:
        return self.told(self.world.park(lease, milliseconds(limit)))

    def do_unpark(self, lease: str, session: str | None = None, ttl: str = "") -> list[str]:
        return self.told(self.world.unpark(lease, session, milliseconds(ttl) if ttl else None))

    def do_release(self, lease: str, *flags: str) -> list[str]:
        return self.told(self.world.release(lease, whole_set="whole" in flags))

    def do_abandon(self, request: str, session: str | None = None) -> list[str]:
        return self.told(self.world.abandon(request, session))

    def do_break(self, key: str, reason: str = "stuck") -> list[str]:
        return self.told(self.world.break_key(key, reason))

    def do_commit(self, key: str, *flags: str, **named: str) -> list[str]:
        options: dict[str, Any] = {name: int(named[name]) for name in ("seq", "if_revision") if name in named}
        if "value" in named:
            options["value"] = named["value"].encode()
        return self.told(
            self.world.commit(
                key=key,
                lease=named["lease"],
                token=int(named["token"]),
                mode=named["mode"],  # type: ignore[arg-type]
                slot=int(named.get("slot", 0)),
                op=named.get("op"),
                require_live="late" not in flags,
                **options,
            )
        )

    def do_delete_record(self, key: str) -> list[str]:
        return self.told(self.world.delete_record(key))

    def do_open(self, session: str, owner: str, ttl: str) -> list[str]:
        return self.told(self.world.open(session, owner, milliseconds(ttl)))

    def do_close(self, session: str) -> list[str]:
        return self.told(self.world.close(session))

    def do_tick(self) -> list[str]:
        return self.told(self.world.tick())

    def do_wait(self, time: str) -> list[str]:
        self.world.wait(milliseconds(time))
        return [f"it is {self.world.now_ms} ms"]

    def do_change_leader(self, lost: str = "0ms") -> list[str]:
        self.world.change_leader()
        return [f"after {milliseconds(lost)} ms without a leader it is {self.world.now_ms} ms"]

    def do_look(self, ahead: str = "0ms") -> list[str]:
        due = self.world.table.due(self.world.now_ms + milliseconds(ahead), 500)
        self.seen = due or None
        return [f"due: {item.kind} {item.id} at {item.deadline_ms} ms" for item in due] or ["nothing due"]

    def do_expire(self) -> list[str]:
        seen, self.seen = self.seen, None
        return self.told(self.world.expire(seen))

    def do_show(self, key: str) -> list[str]:
        table = self.world.table
        lines = [f"holder {self.lease_words(grant)}" for grant in table.holders(TENANT, key)]
        lines += [f"waiter {waiter.owner} for {waiter.request_id}" for waiter in table.queue(TENANT, key)]
        state = table.key_state(TENANT, key)
        if state is not None:
            lines += [
                f"guard {state.guard_mode or 'of no mode'}{f' of slot {slot}' if slot else ''}: "
                f"floor {guard.floor}, last token {guard.last_token}, last seq {guard.last_seq}"
                for slot, guard in sorted(state.guards.items())
            ]
            if state.blocked_until_ms > self.world.now_ms:
                lines.append(f"grace period for {self.left(state.blocked_until_ms)}")
        record = table.record(TENANT, key)
        if record is not None:
            value = record.value.decode()
            lines.append(
                f"record {value!r} by {record.owner}, token {record.token}, revision {record.revision}"
            )
        return lines or ["nothing"]
