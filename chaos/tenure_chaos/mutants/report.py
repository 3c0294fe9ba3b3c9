"""What was caught, as tables for people, and how they come into a page between two marks."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tenure_chaos.mutants.catalogue import BY_NAME, LISTED
from tenure_chaos.mutants.hunt import Catch
from tenure_chaos.mutants.mitigations import BY_NAME as BY_MITIGATION
from tenure_chaos.mutants.survey import Survey

RULES_NAMED = 2
"""Most rules that a row names."""


class MarksMissing(Exception):
    """The page has no place for the table."""


def write_between(page: Path, mark: str, text: str) -> None:
    """Put ``text`` between ``<!-- mark:begin -->`` and ``<!-- mark:end -->``. Raises MarksMissing."""
    begin, end = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise MarksMissing(f"{page} has no {begin} ... {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def by_mutant(catches: Sequence[Catch]) -> dict[str, list[Catch]]:
    """In the order of the catalogue; those of one mutant in the order of their first seeds."""
    of: dict[str, list[Catch]] = {name: [] for name in BY_NAME}
    for catch in sorted(catches, key=lambda catch: catch.first_seed):
        of[catch.name].append(catch)
    return {name: items for name, items in of.items() if items}


def summary(catches: Sequence[Catch]) -> str:
    """How many were caught, always, and with how many seeds."""
    of = by_mutant(catches)
    caught = [name for name, items in of.items() if all(catch.caught for catch in items)]
    listed = [mutant.name for mutant in LISTED if mutant.name in of]
    seeds = [_median(items) for items in of.values() if all(catch.caught for catch in items)]
    said = f"Caught {len(caught)} of {len(of)} mutants"
    if listed:
        said += f", of the {len(listed)} that were listed beforehand {sum(n in caught for n in listed)}"
    if seeds:
        said += f"; the median mutant took {_number(median(seeds))} seeds, the slowest {_number(max(seeds))}"
    return said + "."


def table(catches: Sequence[Catch]) -> str:
    """One row a mutant: in how many hunts it was caught, after how many seeds, and by which rules."""
    rows = [
        "| mutant | what it does | caught | seeds: median (most) | first by |",
        "|---|---|---|---|---|",
    ]
    for name, items in by_mutant(catches).items():
        caught = [catch for catch in items if catch.caught]
        seeds = f"{_number(_median(items))} ({max(catch.seeds for catch in items)})" if caught else "-"
        star = " *" if BY_NAME[name] in LISTED else ""
        rows.append(
            f"| {name}{star} | {BY_NAME[name].what} | {len(caught)} of {len(items)} | {seeds} "
            f"| {_first_rules(caught)} |"
        )
    return "\n".join(rows)


def _first_rules(caught: Sequence[Catch]) -> str:
    first = Counter(catch.rules[0] for catch in caught)
    return ", ".join(rule for rule, _ in first.most_common(RULES_NAMED))


def _median(items: Sequence[Catch]) -> float:
    return median(catch.seeds for catch in items)


def _number(value: float) -> str:
    return f"{value:g}"


def mitigations_table(surveys: Sequence[Survey]) -> str:
    """One row a mitigation: which seeds break what without it, or how much less peace there is."""
    rows = [
        "| left out | defects | the cluster then | seeds | broke a rule | first seed | rules "
        "| elections an hour, with it | calls without answer, with it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for found in surveys:
        off, without, with_it = BY_MITIGATION[found.name], found.without, found.with_it
        first = str(found.broken[0]) if found.broken else "-"
        rules = ", ".join(rule for rule, _ in without.rules.most_common(RULES_NAMED)) or "-"
        elections = unanswered = ""
        if off.disturbs:
            elections = f"{without.elections_an_hour:.0f}, {with_it.elections_an_hour:.0f}"
            unanswered = f"{without.unanswered_share:.1%}, {with_it.unanswered_share:.1%}"
        rows.append(
            f"| {off.name} | {off.closes} | {off.what} | {without.seeds} | {len(found.broken)} | {first} "
            f"| {rules} | {elections} | {unanswered} |"
        )
    return "\n".join(rows)
