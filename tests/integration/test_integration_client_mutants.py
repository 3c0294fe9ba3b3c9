"""The check of T32 against a real cluster has teeth: a client that renews on the body's own loop fails it."""

from collections.abc import AsyncIterator, Iterator

import pytest
import test_integration_leases
from dev_process import DevProcess

import tenure
from tenure import Client, _background
from tenure_chaos.mutants.edits import Edit, made

pytestmark = [pytest.mark.process, pytest.mark.slow]

RENEWER_ON_THE_BODYS_LOOP = Edit(
    "tenure._background:LoopThread.__init__",
    """\
    self._ready = threading.Event()
    self._thread = threading.Thread(target=self._main, name=name, daemon=True)
    self._thread.start()
    self._ready.wait()""",
    """\
    self._thread = threading.current_thread()
    self._stopped = asyncio.Event()
    self.loop = asyncio.get_running_loop()""",
)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    with DevProcess(tmp_path_factory.mktemp("mutants")) as running:
        yield running


@pytest.fixture
async def client(dev: DevProcess) -> AsyncIterator[Client]:
    async with tenure.connect(dev.urls) as connected:
        yield connected


async def test_t32_a_renewer_on_the_bodys_loop_fails_the_check_of_t32(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T32: the very check that the client as it is passes, in test_integration_leases.py."""
    check = (
        test_integration_leases.test_t32_a_body_that_blocks_its_loop_for_ten_seconds_keeps_a_lease_of_three
    )
    monkeypatch.setattr(_background, "_shared", _background._Shared())
    with made([RENEWER_ON_THE_BODYS_LOOP]) as entered, pytest.raises(tenure.LeaseLost) as lost:
        await check(client, "mutants/t32")
    assert entered["LoopThread.__init__"], "the mutant was not run"
    assert lost.value.reason == "expired"
