"""The package as users meet it: light to import, its errors where they belong, its answers those of the
server."""

import json
import pickle
import subprocess
import sys
import types
import typing

import msgspec
import pytest

import tenure
from tenure import answers
from tenure._durations import format_ms, parse_ms
from tenure_cluster.lease import events
from tenure_cluster.service import cluster_replies, credential_replies, replies, watch_messages

ERRORS = [
    tenure.LeaseUnavailable(None, detail="d", request_id="x"),
    tenure.LeaseLost("expired"),
    tenure.CommitRefused("stale_token", 8, detail="d", revision=1),
    tenure.NotAuthorized(detail="d"),
    tenure.QuotaExceeded(detail="d", retry_after=1.0),
    tenure.InvalidRequest(detail="d", path="$.key"),
    tenure.ClusterUnavailable(detail="d"),
    tenure.OutcomeUnknown(detail="d"),
]


def _imported(statement: str) -> dict:
    program = (
        "import sys, json, time; t = time.perf_counter(); "
        f"{statement}; took = time.perf_counter() - t; "
        "print(json.dumps({'took_s': took, 'modules': sorted(sys.modules)}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_import_is_light_and_loads_neither_the_http_library_nor_the_server() -> None:
    runs = [_imported("import tenure") for _ in range(3)]
    loaded = {name.partition(".")[0] for name in runs[0]["modules"]}
    assert loaded.isdisjoint({"aiohttp", "asyncio", "msgspec", "click", "rich", "tenure_cluster"})
    assert min(run["took_s"] for run in runs) < 0.150


def test_the_whole_client_loads_without_the_server_and_without_what_only_the_server_needs() -> None:
    loaded = _imported("import tenure, tenure._cli.group; tenure.connect(); import aiohttp")["modules"]
    roots = {name.partition(".")[0] for name in loaded}
    assert roots.isdisjoint({"tenure_cluster", "pysyncobj", "msgpack", "structlog", "uvloop"})


def test_the_test_kit_loads_where_only_the_client_is_installed() -> None:
    loaded = _imported("import tenure.testing, tenure.testing.pytest_plugin")["modules"]
    roots = {name.partition(".")[0] for name in loaded}
    assert roots.isdisjoint({"pysyncobj", "msgpack", "structlog", "uvloop"})
    assert not any(name.startswith("tenure_cluster.raft") for name in loaded)


def test_every_public_name_is_there() -> None:
    for name in tenure.__all__:
        assert getattr(tenure, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tenure.nonsense  # noqa: B018


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_no_error_is_taken_for_something_else(error: tenure.TenureError) -> None:
    assert isinstance(error, tenure.TenureError)
    assert not isinstance(error, (RuntimeError, OSError, TimeoutError, ValueError, LookupError))
    assert str(error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_errors_travel_between_processes(error: tenure.TenureError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is type(error)
    assert copy.__dict__ == error.__dict__
    assert str(copy) == str(error)


SAME_ANSWERS = {
    answers.Holder: replies.HolderBody,
    answers.Progress: replies.ProgressBody,
    answers.QueueHolder: replies.HolderBody,
    answers.LeaseInfo: replies.LeaseBody,
    answers.Grant: replies.LeaseBody,
    answers.Ahead: replies.AheadBody,
    answers.Acquired: (replies.GrantedReply, replies.WaitingReply),
    answers.Renewed: replies.RenewedReply,
    answers.Passed: (replies.HandedOverReply, replies.ParkedReply, replies.UnparkedReply),
    answers.Session: replies.SessionBody,
    answers.SessionAnswer: replies.SessionReply,
    answers.Released: replies.ReleasedReply,
    answers.BrokenLease: replies.BrokenBody,
    answers.Broken: replies.BrokenReply,
    answers.Validation: replies.ValidateReply,
    answers.Accepted: replies.AcceptedReply,
    answers.LeasePage: replies.LeasesReply,
    answers.QueuedWaiter: replies.WaiterBody,
    answers.Blocker: replies.BlockerBody,
    answers.Queue: replies.QueueReply,
    answers.Event: watch_messages.EventBody,
    answers.Record: replies.RecordReply,
    answers.Member: replies.MemberBody,
    answers.Cluster: replies.ClusterReply,
    answers.AboutNode: replies.OwnBody,
    answers.NodeView: replies.NodeBody,
    answers.Nodes: replies.NodesReply,
    answers.Credential: credential_replies.CredentialBody,
    answers.NewCredential: credential_replies.CredentialReply,
    answers.CredentialPage: credential_replies.CredentialsReply,
    answers.Quota: credential_replies.QuotaBody,
    answers.QuotaAnswer: credential_replies.QuotaReply,
    answers.Tenant: credential_replies.TenantBody,
    answers.TenantPage: credential_replies.TenantsReply,
    answers.Transferred: cluster_replies.TransferredReply,
    answers.MemberIs: cluster_replies.MemberIsBody,
    answers.Members: cluster_replies.MembersReply,
}


@pytest.mark.parametrize("ours", SAME_ANSWERS, ids=lambda ours: ours.__name__)
def test_the_client_knows_the_answers_that_the_server_gives(ours: type[msgspec.Struct]) -> None:
    theirs = SAME_ANSWERS[ours]
    given = {
        field.name: field.type
        for reply in (theirs if isinstance(theirs, tuple) else (theirs,))
        for field in msgspec.structs.fields(reply)
    }
    for field in msgspec.structs.fields(ours):
        assert field.name in given
        if field.required:
            assert _plain(field.type) <= _plain(given[field.name]) | {type(None)}


def test_the_client_has_a_name_for_every_kind_of_event() -> None:
    kinds = set(typing.get_args(events.EventKind))
    assert {kind.value for kind in answers.EventKind} == kinds | {"gap"}
    assert {kind.value for kind in answers.ENDS} == events.ENDS


def _plain(kind: object) -> set[object]:
    """The kinds of value that a type allows, structs as one."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return set().union(*(_plain(part) for part in typing.get_args(kind)))
    if typing.get_origin(kind) is typing.Literal:
        return {type(value) for value in typing.get_args(kind)}
    if typing.get_origin(kind) is not None:
        return {typing.get_origin(kind)}
    return {msgspec.Struct if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else kind}


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30s", 30_000), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000), ("1h30m", 5_400_000), ("0", 0)]
    + [("1.5s", 1_500), (" 5s ", 5_000), ("0s", 0), ("1d", 86_400_000), ("1m500ms", 60_500)],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert parse_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "30", "s", "-1s", "1 s", "1e3s", "1w", "30S", "1s;", "٣s", "9" * 20 + "s", "nan"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 30s"):
        parse_ms(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0.0s"), (29_950, "29.9s"), (61_000, "1m01s"), (3_600_000, "1h00m"), (90_061_000, "25h01m")],
)
def test_durations_are_written_short(ms: int, text: str) -> None:
    assert format_ms(ms) == text
