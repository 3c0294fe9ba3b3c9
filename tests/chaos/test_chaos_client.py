"""A simulated client: it dies, is paused, hangs up, and its requests may arrive twice."""

import asyncio
from typing import Any

from tenure import _requests
from tenure._handle import State
from tenure_chaos.history import Effect
from tenure_chaos.sim.stage import Stage, play
from tenure_chaos.sim.workload import Worker
from tenure_chaos.sim.workloads.acquiring import acquire
from tenure_chaos.sim.workloads.calls import How
from tenure_chaos.sim.workloads.front import Watched
from tenure_chaos.sim.workloads.program import Program
from tenure_chaos.sim.workloads.sessions import BY_OWN_CLOCK, Handle
from tenure_chaos.sim.world import World

ROUNDING_S = 1e-6


def program_of(stage: Stage, name: str) -> Program:
    return Program(stage.world, stage.actor(name).client)


async def acquired(stage: Stage, program: Program, name: str, **fields: Any) -> Handle:
    handle = await stage.actor(name).begin(acquire(program, "job", **fields))
    assert handle is not None
    return handle


def granted(world: World) -> list[int]:
    return [
        event["token"]
        for effect in world.history.effects
        for event in effect.events
        if event["kind"] == "granted"
    ]


def test_a_paused_client_believes_no_longer_than_its_clock_says() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        holder = program_of(stage, "A")
        handle = await acquired(stage, holder, "A", ttl_ms=3_000)
        stage.actor("A").pause()
        other = await acquired(stage, program_of(stage, "B"), "B", ttl_ms=3_000, wait_s=20.0)
        believed = stage.world.history.beliefs[0]
        assert (believed.token, believed.why) == (handle.token, BY_OWN_CLOCK)
        assert believed.ended_at < stage.granted_at("job", other.token)
        stage.actor("A").resume()
        assert not handle.held()
        assert handle.life.reason == "expired"

    play(story)


def test_a_renewal_moves_the_end_of_a_belief_and_a_release_ends_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        program, actor = program_of(stage, "A"), stage.actor("A")
        handle = await acquired(stage, program, "A", ttl_ms=3_000)
        believed = stage.world.history.beliefs[0]
        first = believed.ended_at
        await asyncio.sleep(1.0)
        await actor.begin(handle.session.renew())
        assert abs(believed.ended_at - first - 1.0) < 0.05
        assert believed.why == BY_OWN_CLOCK
        await asyncio.sleep(0.5)
        released_at = stage.now
        await actor.begin(handle.release())
        assert believed.why == "released"
        assert released_at <= believed.ended_at <= released_at + ROUNDING_S

    play(story)


def test_a_dead_client_believes_nothing_and_its_lease_runs_out() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        program = program_of(stage, "A")
        client = program.client
        client.on_death = program.forget_everything
        await acquired(stage, program, "A", ttl_ms=3_000)
        old = client.process
        client.die(silent=True)
        assert not old.alive
        assert client.process.alive
        assert client.process.incarnation == old.incarnation + 1
        assert stage.world.history.beliefs[0].ended_at == stage.now
        assert stage.world.history.beliefs[0].why == "its process died"
        # The new process remembers nothing: to the cluster it is somebody else.
        again = await acquired(stage, program, "A", ttl_ms=3_000, wait_s=20.0)
        assert granted(stage.world) == [1, again.token]
        assert len(stage.events("expired", "job")) == 1

    play(story)


def test_calls_of_a_dead_client_stay_open_in_the_history() -> None:
    async def story(stage: Stage) -> None:
        leader = await stage.start()
        program = program_of(stage, "A")
        stage.cut_off(leader)
        stage.actor("A").begin(program.call(_requests.release(lease_id="x"), lease_id="x"))
        await asyncio.sleep(0.01)
        program.client.die(silent=False)
        stage.mend()
        await asyncio.sleep(5.0)
        [record] = [call for call in stage.world.history.calls if call.name == "release"]
        assert record.outcome == "pending"
        assert record.returned_at == float("inf")

    play(story)


def test_a_waiter_that_dies_and_hangs_up_leaves_the_queue() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        holder = await acquired(stage, program_of(stage, "A"), "A", ttl_ms=10_000)
        for name in ("B", "C"):
            stage.actor(name).begin(acquire(program_of(stage, name), "job", wait_s=30.0))
            await stage.until(lambda: stage.events("queue_joined", "job"), "it waits")
            await asyncio.sleep(0.1)
        program_of(stage, "B").client.die(silent=False)
        await stage.until(lambda: stage.events("queue_left", "job"), "who hung up has left")
        await stage.actor("A").begin(holder.release())
        assert [event["owner"] for _, event in stage.events("granted", "job")][1] == stage.actor("C").host

    play(story)


def test_an_answer_that_takes_too_long_does_not_undo_a_renewal() -> None:
    """The front gives up what waits when its caller hangs up, and nothing else."""

    async def story(stage: Stage) -> None:
        leader = await stage.start()
        program = program_of(stage, "A")
        handle = await acquired(stage, program, "A", ttl_ms=10_000)
        renewals = len(stage.effects("Renew"))
        stage.cut([leader.name], [program.client.name])
        await stage.actor("A").begin(
            program.call(_requests.renew(lease_id=handle.lease_id), How(timeout_s=0.2), **handle.named)
        )
        stage.mend()
        await stage.until(lambda: len(stage.effects("Renew")) > renewals, "it was renewed all the same")
        assert program.client.counts["request given up with its connection"] == 0

    play(story)


def test_only_what_may_be_repeated_arrives_twice() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        program = program_of(stage, "A")
        program.client.duplicate_request = 1.0
        handle = await acquired(stage, program, "A", ttl_ms=10_000)
        await stage.until(lambda: len(stage.effects("Acquire")) == 2, "the acquire has arrived twice")
        assert [effect.result_fields["replayed"] for effect in stage.effects("Acquire")] == [False, True]
        [acquire_record] = [call for call in stage.world.history.calls if call.name == "acquire"]
        assert acquire_record.doubtful
        await stage.actor("A").begin(
            program.call(_requests.break_(key=handle.key, reason="test"), key=handle.key)
        )
        await asyncio.sleep(10.0)
        assert len(stage.effects("Break")) == 1
        assert program.client.counts["duplicate request delivered"] == 1

    play(story, breaks=True)


def test_a_cancelled_acquire_leaves_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        holder = await acquired(stage, program_of(stage, "A"), "A", ttl_ms=10_000)
        program = program_of(stage, "B")

        async def cancelled() -> None:
            waiting = program.begin(acquire(program, "job", wait_s=30.0))
            await asyncio.sleep(1.0)
            waiting.cancel()
            try:
                await waiting
            except asyncio.CancelledError:
                return
            raise AssertionError("it was not cancelled")

        await stage.actor("B").begin(cancelled())
        assert [event["detail"] for _, event in stage.events("queue_left", "job")] == ["abandoned"]
        await stage.actor("A").begin(holder.release())
        assert granted(stage.world) == [holder.token]

    play(story)


def test_the_whole_client_keeps_a_lease_and_loses_it_by_its_own_clock() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        program, actor = program_of(stage, "A"), stage.actor("A")

        async def enter() -> Watched:
            lease = program.front.lease("job", ttl=3.0, owner="A")
            return program.front.observe(await lease.acquire())

        watched = await actor.begin(enter())
        await asyncio.sleep(10.0)
        assert watched.held.state is State.HELD
        assert len(stage.effects("Renew")) > 5
        believed = stage.world.history.beliefs[0]
        assert believed.ended_at > stage.now
        actor.pause()
        other = await acquired(stage, program_of(stage, "B"), "B", ttl_ms=3_000, wait_s=20.0)
        assert believed.ended_at < stage.granted_at("job", other.token)
        actor.resume()
        assert watched.held.state is State.LOST
        assert watched.held.lost_reason == "expired"

    play(story)


def test_what_the_whole_client_could_not_give_up_at_once_it_gives_up_later() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        program, actor = program_of(stage, "B"), stage.actor("B")
        holder = await acquired(stage, program_of(stage, "A"), "A", ttl_ms=60_000)
        lease = program.front.lease("job", ttl=10.0, owner="B", wait=30.0)
        waiting = actor.begin(lease.acquire())
        await stage.until(lambda: stage.events("queue_joined", "job"), "it waits")
        stage.cut([actor.host], list(stage.world.nodes))
        waiting.cancel()

        def abandons() -> list[Effect]:
            return [
                effect for effect in stage.effects("Abandon") if effect.fields["poll_deadline_ms"] is None
            ]

        await asyncio.sleep(3.0)
        assert abandons() == []
        stage.mend()
        await stage.until(abandons, "it was abandoned all the same")
        await stage.actor("A").begin(holder.release())
        assert granted(stage.world) == [holder.token]

    play(story)


def test_a_worker_that_dies_begins_anew() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        client = stage.actor("A").client
        worker = Worker(stage.world, client)
        stage.world.loop.spawn(client.process, lambda: stage.world.loop.create_task(worker.run()))
        await stage.until(lambda: client.process.incarnation >= 3, "it has died three times", within_s=300.0)
        worker.stopping = True
        owners = {event["owner"] for _, event in stage.events("granted", "k0")}
        assert owners == {client.name}
        numbers = [call.asked["request_id"] for call in stage.world.history.calls if call.name == "acquire"]
        assert len(set(numbers)) == len(numbers)
        await stage.until(lambda: not holds_anything(stage), "everything has ended", within_s=60.0)

    play(story, crash_client_s=5.0, work=("hold",), keys=1, think_s=0.2)


def holds_anything(stage: Stage) -> bool:
    return any(node.replica is not None and node.replica.table.leases for node in stage.world.nodes.values())
