"""What the engine relies on in the text of PySyncObj 0.3.17: canaries for every private name, and the
refusal of any other text."""

import inspect
import re
import zlib
from pathlib import Path

import pysyncobj.syncobj as syncobj
import pytest
from raft_handkit import HandNet

from tenure_cluster.raft import engine
from tenure_cluster.raft.engine import PackageNotAudited, RaftBroken, Replica, verify_package

OVERRIDDEN = {
    "_SyncObj__connectedToAnyone": ["self"],
    "_SyncObj__sendAppendEntries": ["self"],
    "_SyncObj__applyLogEntries": ["self"],
    "_checkCommandsToApply": ["self"],
    "_SyncObj__tryLogCompaction": ["self"],
    "_SyncObj__loadDumpFile": ["self", "clearJournal"],
    "_SyncObj__doApplyCommand": ["self", "command"],
    "_SyncObj__changeCluster": ["self", "request"],
    "_SyncObj__setCurrentTerm": ["self", "term", "votedForNodeId"],
}
CALLED = ["_SyncObj__onMessageReceived", "_SyncObj__setState", "doTick"]
ATTRIBUTES = [
    "_SyncObj__serializer",
    "_SyncObj__newAppendEntriesTime",
    "_SyncObj__raftState",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__noopIDx",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftNextIndex",
    "_SyncObj__otherNodes",
    "_SyncObj__readonlyNodes",
    "_SyncObj__lastResponseTime",
    "_SyncObj__raftLeader",
    "_SyncObj__raftElectionDeadline",
]
GLOBALS = ["monotonicTime", "random", "createJournal", "createPoller", "pickle"]


def test_the_installed_package_is_the_audited_one() -> None:
    verify_package()


def test_any_other_text_is_refused_with_both_checksums(tmp_path: Path) -> None:
    other = tmp_path / "syncobj.py"
    other.write_bytes(Path(syncobj.__file__).read_bytes() + b"\n")
    with pytest.raises(PackageNotAudited, match=engine.AUDITED_SHA256) as refused:
        verify_package(other)
    assert "pysyncobj==0.3.17" in str(refused.value)


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_every_overridden_name_exists_in_the_package_with_that_signature(name: str) -> None:
    theirs = inspect.signature(getattr(syncobj.SyncObj, name))
    assert list(theirs.parameters) == OVERRIDDEN[name]
    assert name in vars(Replica), "the override is there"


def test_every_private_method_that_the_engine_overrides_is_listed_here() -> None:
    ours = {name for name in vars(Replica) if name.startswith("_SyncObj__") or name in vars(syncobj.SyncObj)}
    assert ours - {"__init__", "__doc__", "__module__"} == set(OVERRIDDEN)


@pytest.mark.parametrize("name", CALLED)
def test_every_called_name_exists(name: str) -> None:
    assert callable(getattr(syncobj.SyncObj, name))


@pytest.fixture(scope="module")
def replica() -> Replica:
    return HandNet(3)["n1"].core.replica


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_that_is_read_or_set_is_one_of_the_package(name: str, replica: Replica) -> None:
    private = name.removeprefix("_SyncObj__")
    assert f"self.__{private} = " in inspect.getsource(syncobj.SyncObj)
    assert hasattr(replica, name)


def test_the_log_of_the_package_is_our_journal(replica: Replica) -> None:
    assert replica._SyncObj__raftLog is replica.journal


@pytest.mark.parametrize("name", GLOBALS)
def test_every_replaced_global_is_looked_up_by_the_package_when_it_runs(name: str) -> None:
    assert name in vars(syncobj)
    assert f"{name}(" in inspect.getsource(syncobj) or f"{name}." in inspect.getsource(syncobj)


def test_the_engine_uses_no_private_name_that_is_not_listed_here() -> None:
    private = set(re.findall(r"_SyncObj__\w+", inspect.getsource(engine)))
    assert private <= set(OVERRIDDEN) | set(CALLED) | set(ATTRIBUTES)
    assert private >= set(ATTRIBUTES) | set(OVERRIDDEN) - {"_checkCommandsToApply"}


def test_outside_of_a_replica_the_package_works_as_it_always_did() -> None:
    HandNet(1)
    assert syncobj.monotonicTime() > 0
    assert 0 <= syncobj.random.random() < 1
    assert syncobj.pickle.loads(syncobj.pickle.dumps((1, 2))) == (1, 2)
    assert len(syncobj.createJournal(None)) == 0


def test_inside_of_a_replica_pickle_cannot_be_reached(replica: Replica) -> None:
    with replica.entered(), pytest.raises(RaftBroken, match="pickle"):
        syncobj.pickle.loads(b"")
    with replica.entered(), pytest.raises(RaftBroken, match="pickle"):
        replica.setCodeVersion(0)


def test_the_parts_that_are_replaced_as_a_whole_refuse_to_work(replica: Replica) -> None:
    with pytest.raises(RaftBroken, match="serializer"):
        replica._SyncObj__serializer.serialize((), 0)
    with pytest.raises(RaftBroken, match="snapshot loader"):
        replica._SyncObj__loadDumpFile(clearJournal=False)
    with pytest.raises(RaftBroken, match="apply"):
        replica._SyncObj__doApplyCommand(b"\0")
    with pytest.raises(RaftBroken, match="membership"):
        replica._SyncObj__changeCluster(["add", "n9"])


def test_the_package_counts_the_voters_and_keeps_books_of_learners_too() -> None:
    net = HandNet(3)
    net.elect("n1", "n2")
    core = net["n1"].core
    with core.replica.entered():
        core.replica.set_members(["n2", "n4"], ["n5"])
    assert {node.id for node in core.replica.otherNodes} == {"n2", "n4"}
    assert {node.id for node in core.replica.readonlyNodes} == {"n5"}
    for books in (core.replica._SyncObj__raftMatchIndex, core.replica._SyncObj__lastResponseTime):
        assert {node.id for node in books} == {"n2", "n4", "n5"}
    source = inspect.getsource(syncobj.SyncObj)
    assert source.count("(len(self.__otherNodes) + 1) / 2") == 4, "an election, two votes, a step down"


def test_each_of_several_replicas_in_a_process_has_its_own_time_and_journal() -> None:
    one, two = HandNet(1), HandNet(1)
    two.clock.now_s = 5.0
    first, second = one["n1"].core.replica, two["n1"].core.replica
    with first.entered():
        assert syncobj.monotonicTime() == one.clock.now_s
        assert syncobj.createJournal("journal") is one["n1"].journal
        with second.entered():
            assert syncobj.monotonicTime() == 5.0
            assert syncobj.createJournal("journal") is two["n1"].journal
        assert syncobj.monotonicTime() == one.clock.now_s


def test_the_order_of_a_set_of_members_does_not_depend_on_the_process() -> None:
    members = HandNet(5)["n1"].core.replica.otherNodes
    assert {hash(member) for member in members} == {
        zlib.crc32(name.encode()) for name in ("n2", "n3", "n4", "n5")
    }
