"""What the nodes ask one another for a backup."""

import msgspec


class BackupPointRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to where must a backup reach that is asked for now? A read, so the answer comes behind a barrier."""


class BackupPointReply(msgspec.Struct, frozen=True, kw_only=True):
    """The index that the leader's state had when its leadership had been confirmed. A state of that index has
    everything that was acknowledged before the question."""

    applied_index: int
