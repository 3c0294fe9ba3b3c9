"""A program of a directed play that is killed before it has begun leaves nothing behind, and no warning."""

import gc
import warnings

from tenure_chaos.sim.stage import Stage, play


def test_what_a_killed_program_had_not_begun_never_begins_and_nobody_is_warned() -> None:
    begun: list[str] = []

    async def work(name: str) -> None:
        begun.append(name)

    async def story(stage: Stage) -> None:
        actor = stage.actor("A")
        actor.begin(work("killed at once"))
        actor.die()
        await actor.begin(work("a new process"))
        actor.begin(work("when the play is over"))

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        play(story)
        gc.collect()
    assert begun == ["a new process"]
    assert [str(warning.message) for warning in warned] == []
