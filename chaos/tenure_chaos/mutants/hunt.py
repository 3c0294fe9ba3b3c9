"""Runs a mutant on one seed after another until the harness finds something wrong with it."""

import logging
import multiprocessing
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenure_chaos.mutants.catalogue import BY_NAME
from tenure_chaos.mutants.edits import Edit, made
from tenure_chaos.sim.options import Options
from tenure_chaos.sim.run import run_seed
from tenure_chaos.time_limit import Hangs, no_longer_than

SEED_WALL_S = 300
"""A seed of a mutant that takes longer hangs, and that is no verdict."""

OWN_CHECKS_OFF = (Edit("tenure_cluster.lease.snapshot:load", "check_state(table)", "pass"),)
"""The program checks its own state when it loads a snapshot, and would stop; but the harness shall notice."""


@dataclass
class Catch:
    """What came of hunting a mutant from one seed on."""

    name: str
    first_seed: int
    seeds: int
    """How many were run; the last of them is the one that caught it."""
    rules: tuple[str, ...] = ()
    """Those that the last seed broke, in the order in which it did; empty if none was."""
    violation: str = ""
    failed: tuple[str, ...] = ()
    """Seeds on which the harness itself failed or hung, with what it said: they count as not caught."""
    entered: dict[str, int] = field(default_factory=dict)
    """How often each edited function was entered."""

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Catch":
        """Inverse of dataclasses.asdict(), after JSON."""
        lists = {name: tuple(plain[name]) for name in ("rules", "failed")}
        return cls(**{**plain, **lists})

    @property
    def caught(self) -> bool:
        return bool(self.rules)

    @property
    def seed(self) -> int:
        """The one that caught it."""
        return self.first_seed + self.seeds - 1


class Hunt(NamedTuple):
    """What to hunt: see ``hunt``."""

    name: str
    first_seed: int
    seeds_max: int
    overrides: dict[str, str]


def hunt_all(hunts: Sequence[Hunt], jobs: int) -> Iterator[Catch]:
    """Each in a process of its own, so that nothing of a mutant is left for the next one."""
    if not hunts:
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=be_quiet, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_hunt, hunts)


def be_quiet() -> None:
    """The program's own log says the same a thousand times over."""
    logging.disable(logging.CRITICAL)


def _hunt(hunted: Hunt) -> Catch:
    return hunt(*hunted)


def hunt(name: str, first_seed: int, seeds_max: int, overrides: Mapping[str, str]) -> Catch:
    """Hunt one mutant, in this process, which has the unmodified program again when it returns. Raises
    EditDoesNotFit.
    """
    catch = Catch(name, first_seed, 0)
    failed: list[str] = []
    with made((*BY_NAME[name].edits, *OWN_CHECKS_OFF)) as entered:
        for seed in range(first_seed, first_seed + seeds_max):
            catch.seeds += 1
            violations, failure = _run(Options.for_seed(seed, overrides), seed)
            if failure:
                failed.append(f"seed {seed}: {failure}")
            if violations:
                catch.rules = rules_of(violations)
                catch.violation = violations[0]
                break
        catch.entered = dict(entered)
    catch.failed = tuple(failed)
    return catch


def rules_of(violations: list[str]) -> tuple[str, ...]:
    """The rules that were broken, each once."""
    return tuple(dict.fromkeys(violation.partition(":")[0] for violation in violations))


def _run(options: Options, seed: int) -> tuple[list[str], str]:
    try:
        with no_longer_than(SEED_WALL_S):
            return run_seed(seed, options).violations, ""
    except (Exception, Hangs):
        return [], traceback.format_exc(limit=-2)
