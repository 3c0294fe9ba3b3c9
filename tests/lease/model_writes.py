"""The guarded writes of the fenced-lease model: commit and the record. See ``model_lease`` for the rules."""

from __future__ import annotations

from model_state import Row, State, first


class Writes(State):
    """Commands that write through a key's guard."""

    def commit(self, c: Row) -> Row:
        tenant, key, op_id = c["tenant"], c["key"], c["op_id"]
        if op_id is not None:
            before = first(self.answers, tenant=tenant, key=key, op_id=op_id)
            if before is not None:
                answer: Row = before["answer"] if self.is_retry(c, before["asked"]) else {"is": "Invalid"}
                return answer
        refusal = self.commit_refusal(c)
        answer = refusal if refusal is not None else self.accept(c)
        if answer["is"] == "Invalid":
            return answer
        if refusal is not None:
            self.event(
                tenant,
                "commit_refused",
                key,
                self.writer(c),
                c["token"],
                refusal.get("code", "mode_conflict"),
                "",
                c["slot"],
            )
        if op_id is not None:
            answered = {"tenant": tenant, "key": key, "op_id": op_id, "answer": answer, "at_ms": self.time}
            self.remember(self.answers, answered | {"asked": dict(c)}, "answers")
        return answer

    def is_retry(self, c: Row, before: Row) -> bool:
        """Whether this is the same commit again: everything the caller said is equal."""
        return all(c[name] == before[name] for name in c if name != "wall_ms")

    def commit_refusal(self, c: Row) -> Row | None:
        state = self.key(c["tenant"], c["key"])
        record = self.record(c["tenant"], c["key"])
        revision = record["revision"] if record else 0
        if (c["seq"] is None) == (c["mode"] == "sequence"):
            return {"is": "Invalid"}

        nothing = {"floor": 0, "last_token": 0, "last_seq": 0}
        guard = state["guards"].get(c["slot"], nothing) if state is not None else nothing

        def refused(code: str) -> Row:
            numbers = {name: guard[name] for name in nothing}
            return {"is": "CommitRefused", "code": code, "revision": revision} | numbers

        if state is None or c["token"] < guard["floor"]:
            return refused("stale_token")
        if c["token"] > guard["floor"] or not self.is_grant_of_floor(c, state):
            return refused("not_live")
        if state["guard_mode"] not in (None, c["mode"]):
            return {"is": "GuardConflict", "present": state["guard_mode"], "asked": c["mode"]}
        if c["mode"] == "once" and c["token"] <= guard["last_token"]:
            return refused("token_used")
        if c["mode"] == "sequence" and (c["token"], c["seq"]) <= (guard["last_token"], guard["last_seq"]):
            return refused("seq_replayed")
        if c["require_live"] and not self.is_live(c):
            return refused("not_live")
        if c["if_revision"] is not None and c["if_revision"] != revision:
            return refused("revision_conflict")
        return None

    def is_grant_of_floor(self, c: Row, state: Row) -> bool:
        """Whether the commit names a lease that the floor was granted to. A break's floor is nobody's; one of
        a shared phase is of every reader while he reads."""
        guard = state["guards"].get(c["slot"], {"lease_id": ""})
        if guard["lease_id"] != "":
            return bool(c["lease_id"] == guard["lease_id"])
        return state["mode"] == "shared" and self.is_live(c)

    def is_live(self, c: Row) -> bool:
        """Whether the lease that the commit names holds this key under this token, claimed and not over."""
        lease = self.lease(c["tenant"], c["lease_id"])
        names = ("key", "token", "slot")
        if lease is None or any(lease[name] != c[name] for name in names):
            return False
        held = lease["claim_deadline_ms"] == 0 and lease["parked_ttl_ms"] == 0
        return held and not self.dead(lease)

    def writer(self, c: Row) -> str:
        """The owner of the lease that a commit names, if it is the floor's or there still."""
        state = self.key(c["tenant"], c["key"]) or {"guards": {}}
        guard = state["guards"].get(c["slot"], {"lease_id": ""})
        if guard["lease_id"] and guard["lease_id"] == c["lease_id"]:
            return str(guard["owner"])
        lease = self.lease(c["tenant"], c["lease_id"])
        return lease["owner"] if lease is not None else ""

    def accept(self, c: Row) -> Row:
        tenant, key = c["tenant"], c["key"]
        state = self.key(tenant, key)
        assert state is not None
        owner = self.writer(c)
        revision = self.event(tenant, "committed", key, owner, c["token"], "", "", c["slot"])
        state["guard_mode"] = c["mode"]
        state["guards"][c["slot"]] |= {"last_token": c["token"], "last_seq": c["seq"] or 0}
        if c["value"] is not None:
            self.records = [row for row in self.records if (row["tenant"], row["key"]) != (tenant, key)]
            self.records.append(
                {
                    "tenant": tenant,
                    "key": key,
                    "value": c["value"],
                    "binary": c["binary"],
                    "digest": c["digest"],
                    "token": c["token"],
                    "owner": owner,
                    "revision": revision,
                    "committed_wall_ms": self.wall,
                }
            )
        self.mark_idle_keys()
        return {"is": "Committed", "revision": revision}

    def delete_record(self, c: Row) -> Row:
        record = self.record(c["tenant"], c["key"])
        if record is None:
            return {"is": "NoRecord"}
        if c["if_revision"] is not None and c["if_revision"] != record["revision"]:
            return {"is": "RevisionConflict", "revision": record["revision"]}
        self.records.remove(record)
        self.mark_idle_keys()
        self.event(c["tenant"], "record_deleted", c["key"], record["owner"], record["token"])
        return {"is": "RecordDeleted", "record": record}
