"""The number of slots of a pool in use, in the fenced-lease model. See ``model_lease`` for the rules."""

from __future__ import annotations

from typing import Any

from model_passing import Passing
from model_state import HOLDERS_MAX, Row


class Pools(Passing):
    """Resizing."""

    def resize(self, c: Row) -> Row:
        model: Any = self
        tenant, key, slots = c["tenant"], c["key"], c["slots"]
        if not 1 <= slots <= HOLDERS_MAX:
            return {"is": "Invalid"}
        self.settle(tenant, key)
        holders, queue, state = self.holders(tenant, key), self.queue(tenant, key), self.key(tenant, key)
        if not holders and not queue:
            return {"is": "NotHeld"}
        mode = (holders or queue)[0]["mode"]
        if mode != "permit":
            return {"is": "ModeConflict", "key": key, "present": mode, "asked": "permit"} | {
                "present_slots": 0,
                "asked_slots": slots,
            }
        before: int = state["slots"] if holders and state is not None else queue[0]["slots"]
        if before != slots:
            sets = [row for row in queue if len(row["keys"]) > 1]
            if sum(len(row["keys"]) for row in sets) > self.bounds["close"]:
                return {"is": "Unsupported"}
            for row in queue:
                if row in sets:
                    model.leave(row, "resized")
                else:
                    row["slots"] = slots
            if state is not None and (state["mode"], state["slots"]) == ("permit", before):
                state["slots"] = slots
            self.event(tenant, "resized", key, c["actor"], 0, str(slots), "permit")
            self.settle(tenant, key)
        return {"is": "Resized", "slots": slots, "before": before} | {
            "holders": len(self.holders(tenant, key))
        }
