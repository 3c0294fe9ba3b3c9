"""Work that is finished behind a cancelled caller fails without a word in the event loop's log."""

import asyncio
from typing import Any

import pytest

from tenure._calls import Calls
from tenure._options import Options
from tenure.errors import OutcomeUnknown


async def fails(begun: asyncio.Event) -> None:
    begun.set()
    await asyncio.sleep(0.01)
    raise OutcomeUnknown(detail="no answer came")


async def test_a_failure_behind_a_cancelled_caller_is_not_logged_as_never_retrieved() -> None:
    loop = asyncio.get_running_loop()
    logged: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: logged.append(context))
    calls = Calls(Options(("http://127.0.0.1:1",)))
    begun = asyncio.Event()
    caller = loop.create_task(calls.finish(fails(begun)))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    [left] = calls._left_behind
    await asyncio.wait([left])
    assert not left._log_traceback  # type: ignore[attr-defined]
    await calls.close()
    assert logged == []


async def test_a_caller_that_waits_is_told() -> None:
    calls = Calls(Options(("http://127.0.0.1:1",)))
    with pytest.raises(OutcomeUnknown):
        await calls.finish(fails(asyncio.Event()))
    await calls.close()
