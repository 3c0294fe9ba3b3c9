"""A LangGraph coordinator: agents compete for one test suite, a human approves it, another process publishes.

    pip install langgraph langgraph-checkpoint-sqlite
    python examples/langgraph_coordinator.py [ENDPOINTS]

Three agents are asked for the security suite of one payment API. One of them gets the lease and writes the
tests, the others see who is at it and go home. The lease is parked while the graph waits at an interrupt, and
no process has to run for that: LangGraph keeps the state of the graph, and the cluster keeps the key. Whoever
resumes the graph takes the lease up, here in another process, with a newer token, and what the agent still
had under way is refused. No model is asked anything; ``write`` is where one would be.

A node that is interrupted runs again from its start when it is resumed, so the interrupt has a node to itself
and is not in the one that acquires. A process that dies in ``write`` leaves a lease that ends by itself; one
that dies between parking and the checkpoint leaves a parked lease, until its limit or ``tenure break``.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import secrets
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, GraphOutput, interrupt

import tenure
from tenure import DEFAULT_ENDPOINTS

A_DAY_S = 24 * 3600
CASES = ["a forged signature", "a replayed payment", "another customer's account"]


class Work(TypedDict, total=False):
    suite: str
    agent: str
    lease_id: str
    """With it anybody can commit: whoever can read the checkpoints is trusted with that."""
    token: int
    approved: bool
    outcome: str


def coordinator(client: tenure.Client, saver: AsyncSqliteSaver) -> CompiledStateGraph[Work, None, Work, Work]:
    async def write(state: Work) -> Work:
        try:
            async with client.lease(state["suite"], ttl=30, owner=state["agent"]) as held:
                for done, case in enumerate(CASES, 1):
                    await asyncio.sleep(0.01)  # the model
                    await held.progress("tests", text=case, counter=done)
                await held.park(A_DAY_S)
        except tenure.LeaseUnavailable as busy:
            return {"outcome": f"{busy.holder.owner if busy.holder else 'somebody else'} is at it"}
        return {"lease_id": held.lease_id, "token": held.token}

    async def approve(state: Work) -> Work:
        return {"approved": interrupt(f"publish {state['suite']}, as {state['agent']} has written it?")}

    async def publish(state: Work) -> Work:
        try:
            held = await client.take_up(state["lease_id"], owner="publisher")
            if state["approved"]:
                tests = held.found_progress.counter if held.found_progress else 0
                await held.commit(f"{tests} tests by {state['agent']}", mode="once")
            await held.release()
        except (tenure.LeaseLost, tenure.LeaseUnavailable, tenure.CommitRefused) as late:
            return {"outcome": f"not published: {late}"}
        return {"outcome": f"{'published' if state['approved'] else 'withdrawn'} with token {held.token}"}

    graph = StateGraph(Work)
    graph.add_node("write", write)
    graph.add_node("approve", approve)
    graph.add_node("publish", publish)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", lambda state: "approve" if "lease_id" in state else END)
    graph.add_edge("approve", "publish")
    graph.add_edge("publish", END)
    return graph.compile(checkpointer=saver)


async def run(
    endpoints: str, saver: AsyncSqliteSaver, thread: str, begin: Work | Command[Any]
) -> GraphOutput[Work]:
    """Run the graph of one thread until it ends or waits for a human."""
    async with tenure.connect(endpoints) as client:
        graph = coordinator(client, saver)
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        # What a node has done is on the disk before the next one begins.
        return await graph.ainvoke(begin, config, durability="sync", version="v2")


async def resume(endpoints: str, checkpoints: str, thread: str, approved: bool) -> str:
    async with AsyncSqliteSaver.from_conn_string(checkpoints) as saver:
        return (await run(endpoints, saver, thread, Command(resume=approved))).value["outcome"]


def clicked(endpoints: str, checkpoints: str, thread: str, approved: bool) -> str:
    """A human has clicked on something, and this runs wherever that is handled."""
    return asyncio.run(resume(endpoints, checkpoints, thread, approved))


async def main(endpoints: str, checkpoints: str) -> None:
    suite = f"payment-api/{secrets.token_hex(4)}/security"
    agents = ["agent-0", "agent-1", "agent-2"]
    async with AsyncSqliteSaver.from_conn_string(checkpoints) as saver:
        ran = await asyncio.gather(
            *(run(endpoints, saver, f"{suite} by {name}", {"suite": suite, "agent": name}) for name in agents)
        )
    for name, output in zip(agents, ran, strict=True):
        for question in output.interrupts:
            say(f"{name} asks with token {output.value['token']}: {question.value}")
        if not output.interrupts:
            say(f"{name} goes home: {output.value['outcome']}")
    [wrote] = [output.value for output in ran if output.interrupts]
    agent, token = wrote["agent"], wrote["token"]

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as elsewhere:
        click = elsewhere.submit(clicked, endpoints, checkpoints, f"{suite} by {agent}", approved=True)
        say("another process: " + await asyncio.wrap_future(click))

    async with tenure.connect(endpoints) as client:
        # The agent was paused in the middle of a write, and wakes up now.
        try:
            await client.commit(suite, lease_id=wrote["lease_id"], token=token, value="half a suite")
        except tenure.CommitRefused as refused:
            say(f"{agent} is too late with token {token}: {refused.code}")
        else:
            sys.exit("the late write was accepted")
        record = await client.record(suite)
        assert record is not None
        say(f"the suite is {record.value!r}, written with token {record.token}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        database = str(Path(directory) / "checkpoints.db")
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ENDPOINTS, database))
