"""The leader is asked to let another node lead."""

import logging
from typing import Any

from tenure_cluster.raft import NoSuchMember, NotLeader, Raft, RaftError, Transferred
from tenure_cluster.service.asks import Ask, Done, NoAnswer
from tenure_cluster.service.cluster_replies import TransferredReply
from tenure_cluster.service.cluster_requests import TransferRequest
from tenure_cluster.service.errors import Problem

_log = logging.getLogger("tenure.cluster")


def transfer(raft: Raft, ask: Ask, done: Done) -> None:
    """Hand the office over as `ask` wants it; `done` is called once, within two election timeouts."""
    request: Any = ask.request
    assert isinstance(request, TransferRequest)

    def ended(outcome: Transferred | RaftError) -> None:
        if isinstance(outcome, Transferred):
            _log.info(
                "the office was handed over, to %s in term %d", outcome.leader_id or "whom?", outcome.term
            )
            done(TransferredReply(leader=outcome.leader_id, term=outcome.term))
        elif isinstance(outcome, NotLeader):
            done(NoAnswer.NOT_EXECUTED)
        else:
            code = "no_member" if isinstance(outcome, NoSuchMember) else "not_transferred"
            _log.warning("the office was not handed over: %s", outcome)
            done(Problem(code, str(outcome)))

    raft.transfer(request.to, ended)
