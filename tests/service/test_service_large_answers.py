"""What many operations that came together are answered, where that is more than one message between nodes may
hold."""

from pathlib import Path
from typing import Any

from service_cluster import TENANT, acquired, ask, cluster, request, until

from tenure_cluster.lease import limits
from tenure_cluster.service.asks import NoAnswer, Outcome
from tenure_cluster.service.peer_messages import (
    ANSWERS_BYTES_MAX,
    Answered,
    decode,
    encode_answered,
    outcomes_of,
)
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


def test_what_can_be_asked_again_is_not_encoded_when_it_is_too_much() -> None:
    record = RecordReply(
        key="k",
        value="x" * limits.VALUE_BYTES_MAX,
        value_encoding="utf8",
        digest=None,
        token=1,
        owner="a",
        revision=1,
        committed_at="",
    )
    outcomes: list[Outcome] = [record] * 600
    encoded = encode_answered(1, outcomes, range(500))
    message = decode(encoded)
    assert isinstance(message, Answered)
    told = [type(outcome) for outcome in outcomes_of(message)]
    fit = ANSWERS_BYTES_MAX // limits.VALUE_BYTES_MAX
    assert told == [RecordReply] * fit + [NoAnswer] * (500 - fit) + [RecordReply] * 100
    assert set(outcomes_of(message)[fit:500]) == {NoAnswer.NOT_EXECUTED}
