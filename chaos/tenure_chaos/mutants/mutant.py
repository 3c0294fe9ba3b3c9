"""What a mutant is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenure_chaos.mutants.edits import Edit


@dataclass(frozen=True)
class Mutant:
    """``what`` says in a few words what the program does wrong."""

    name: str
    what: str
    edits: tuple[Edit, ...]
    profile: Mapping[str, str] = field(default_factory=dict)
    """Options of the simulation, as they are typed, under which its kind of fault is likelier. It is hunted
    with the ordinary draw all the same."""
