"""Bodies of the calls that change who leads, and who the members are."""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

NODE_ID_BYTES_MAX = 64
ADDRESS_BYTES_MAX = 512


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of these bodies."""


NodeId = Annotated[
    str,
    Meta(description="Name of a node.", extra_json_schema={"minLength": 1, "maxLength": NODE_ID_BYTES_MAX}),
]


class TransferRequest(_Request, frozen=True, kw_only=True):
    """``to`` shall lead; without it, a follower that is up to date."""

    to: NodeId | None = None


class AddMemberRequest(_Request, frozen=True, kw_only=True):
    """A new member, or with ``readdress`` other addresses of one that is there."""

    id: NodeId
    peer: Annotated[
        str,
        Meta(
            description="host:port that the other members dial.",
            extra_json_schema={"minLength": 1, "maxLength": ADDRESS_BYTES_MAX},
        ),
    ]
    http: Annotated[
        str,
        Meta(
            description="URL that clients are told.",
            extra_json_schema={"minLength": 1, "maxLength": ADDRESS_BYTES_MAX},
        ),
    ]
    readdress: bool = False


class RemoveMemberRequest(_Request, frozen=True, kw_only=True):
    id: NodeId


ClusterRequest: TypeAlias = TransferRequest | AddMemberRequest | RemoveMemberRequest

CLUSTER_OPERATIONS: dict[str, type[msgspec.Struct]] = {
    "transfer": TransferRequest,
    "add_member": AddMemberRequest,
    "remove_member": RemoveMemberRequest,
}
"""What the leader is asked about the cluster itself, by name: no operations of batches and streams."""

MEMBER_OPERATIONS = frozenset({"add_member", "remove_member"})
"""Those of them that came later than the first."""
