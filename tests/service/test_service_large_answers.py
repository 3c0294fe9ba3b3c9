"""What many operations that came together are answered, where that is more than one message between nodes may
hold."""

from pathlib import Path
from typing import Any

from service_cluster import TENANT, acquired, ask, cluster, request, until

from tenure_cluster.lease import limits
from tenure_cluster.service.replies import RecordReply, RenewedReply

READS = 200


async def test_reads_of_a_frame_whose_answers_are_too_much_for_one_message_are_answered_at_a_follower(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 3) as running:
        leader, node = await running.leader(), await running.follower()
        lease = await acquired(leader, "k", ttl_ms=60_000)
        ref = {"lease_id": lease.lease_id, "token": lease.token, "mode": "current"}
        value = "x" * limits.VALUE_BYTES_MAX
        await ask(leader, "commit", key="k", value=value, **ref)
        assert READS * len(value) > node.config.raft.frame_bytes_max
        read, renew = (
            ("get_record", request("get_record", key="k")),
            request("renew", lease_id=lease.lease_id),
        )
        answers: dict[int, Any] = {}
        node.service.submit(TENANT, [read] * READS + [("renew", renew)], answers.__setitem__)
        await until(lambda: len(answers) == READS + 1, "all answers")
        assert type(answers.pop(READS)) is RenewedReply, "what changes something is executed once"
        assert {type(answer) for answer in answers.values()} == {RecordReply}
        assert leader.service.proposer.asked == 3
