"""Bodies of the calls that change who leads."""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

NODE_ID_BYTES_MAX = 128


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of these bodies."""


NodeId = Annotated[
    str,
    Meta(description="Name of a node.", extra_json_schema={"minLength": 1, "maxLength": NODE_ID_BYTES_MAX}),
]


class TransferRequest(_Request, frozen=True, kw_only=True):
    """``to`` shall lead; without it, a follower that is up to date."""

    to: NodeId | None = None


ClusterRequest: TypeAlias = TransferRequest

CLUSTER_OPERATIONS: dict[str, type[msgspec.Struct]] = {"transfer": TransferRequest}
"""What the leader is asked about the cluster itself, by name: no operations of batches and streams."""
