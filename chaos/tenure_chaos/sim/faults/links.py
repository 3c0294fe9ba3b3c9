"""Links that are cut, slow, or treat connections badly."""

from tenure_chaos.sim.faults.kind import Kind

Pairs = list[tuple[str, str]]


def both_ways(group: list[str], others: list[str]) -> Pairs:
    return [(a, b) for a in group for b in others] + [(b, a) for a in group for b in others]


class _Cut(Kind):
    """Nothing passes; what was on its way is held back until the link is mended or the connection ends."""

    def pairs(self) -> Pairs:
        raise NotImplementedError

    def begin(self) -> str | None:
        self.cut = self.pairs()
        for source, target in self.cut:
            self.world.network.cut(source, target)
        return " ".join(f"{source}>{target}" for source, target in self.cut) or None

    def heal(self) -> None:
        for source, target in self.cut:
            self.world.network.mend(source, target)

    def shuffled(self) -> list[str]:
        names = list(self.world.nodes)
        self.rng.shuffle(names)
        return names


class IsolateLeader(_Cut):
    name = "isolate leader"

    def pairs(self) -> Pairs:
        leader = self.scene.leader_or_any()
        others = [name for name in self.world.nodes if name != leader.name]
        if self.rng.random() < 0.3:
            others += list(self.world.clients)
        return both_ways([leader.name], others)


class Halves(_Cut):
    name = "split in halves"

    def pairs(self) -> Pairs:
        names = self.shuffled()
        at = self.rng.randrange(1, len(names))
        return both_ways(names[:at], names[at:])


class RingOfMajorities(_Cut):
    """Each node sees a majority, and no two see the same one: five nodes in a ring, each linked to its
    neighbours only."""

    name = "ring of majorities"

    def pairs(self) -> Pairs:
        names = self.shuffled()
        if len(names) < 5:
            return []
        count = len(names)
        apart = [(a, b) for a in range(count) for b in range(count) if 1 < (a - b) % count < count - 1]
        return [(names[a], names[b]) for a, b in apart]


class Bridge(_Cut):
    """Two halves that see one another only through one node."""

    name = "bridge"

    def pairs(self) -> Pairs:
        names = self.shuffled()
        half = (len(names) - 1) // 2
        return both_ways(names[:half], names[half + 1 :])


class OneWay(_Cut):
    name = "cut one way"

    def pairs(self) -> Pairs:
        source, target = self.rng.sample(list(self.world.nodes), 2)
        return [(source, target)]


class CutClients(_Cut):
    """No client reaches any node, or no answer comes back."""

    name = "cut clients off"

    def pairs(self) -> Pairs:
        clients, nodes = list(self.world.clients), list(self.world.nodes)
        pairs = both_ways(clients, nodes)
        return pairs if self.rng.random() < 0.5 else pairs[len(pairs) // 2 :]


class SlowLink(Kind):
    name = "slow link"
    seconds = (1.0, 5.0)

    def begin(self) -> str | None:
        source, target = self.rng.sample([*self.world.nodes, *self.world.clients], 2)
        self.link = self.world.network.link(source, target)
        self.link.slow_s = self.rng.choice((0.02, 0.2, 1.0))
        return f"{source}>{target}"

    def heal(self) -> None:
        self.link.slow_s = 0.0


class Jitter(Kind):
    """Every link between nodes takes a different time for each message, so messages of different links
    overtake one another."""

    name = "jitter"
    seconds = (2.0, 8.0)

    def begin(self) -> str | None:
        network, names = self.world.network, list(self.world.nodes)
        self.links = [network.link(a, b) for a in names for b in names if a != b]
        most_s = self.rng.choice((0.01, 0.05, 0.2))
        for link in self.links:
            link.delay_max_s = most_s
        return f"up to {most_s} s"

    def heal(self) -> None:
        for link in self.links:
            link.delay_max_s = self.world.network.usual_delay_s[1]


class Slicing(Kind):
    """Whatever is read comes in pieces."""

    name = "slicing"
    seconds = (2.0, 10.0)

    def begin(self) -> str | None:
        self.world.network.slicing = 0.9
        return "all links"

    def heal(self) -> None:
        self.world.network.slicing = self.world.usual_slicing


class ResetLinks(Kind):
    """Every connection of a pair breaks at both ends; what was on its way is gone."""

    name = "reset links"
    seconds = (0.0,)

    def begin(self) -> str | None:
        one, other = self.rng.sample(list(self.world.nodes), 2)
        self.world.network.reset(one, other)
        return f"{one} {other}"

    def heal(self) -> None:
        """They are dialled anew."""


class HalfOpen(Kind):
    """One end of a pair's connections takes them for lost and dials anew; the other end is not told. What was
    on its way to it still arrives, late and beside the new connection, the last of it perhaps twice."""

    name = "half-open connection"
    seconds = (0.5, 4.0)

    def begin(self) -> str | None:
        network = self.world.network
        one, other = self.rng.sample(list(self.world.nodes), 2)
        self.link = network.link(one, other)
        self.link.slow_s = self.rng.choice((0.0, 0.3, 2.0))
        again_s = self.rng.choice((None, 0.05, 1.0))
        if not network.lose_at_one_end(one, other, again_s):
            self.heal()
            return None
        return f"{one} has lost {other}"

    def heal(self) -> None:
        """Whoever was not told finds out by its pings."""
        self.link.slow_s = 0.0


class HalfMessage(Kind):
    """The next thing that a node writes to another arrives in part, and then the connection breaks at both
    ends."""

    name = "half a message"
    seconds = (2.0,)

    def begin(self) -> str | None:
        one, other = self.rng.sample(list(self.world.nodes), 2)
        self.link = self.world.network.link(one, other)
        self.world.network.tear_next(one, other)
        return f"{one}>{other}"

    def heal(self) -> None:
        if not self.link.tears_next:
            self.world.count("message torn by a reset")
        self.link.tears_next = False


class RepeatedTail(Kind):
    """The last messages of a connection arrive once more, and then it breaks."""

    name = "repeated tail"
    seconds = (0.0,)

    def begin(self) -> str | None:
        one, other = self.rng.sample(list(self.world.nodes), 2)
        count = self.world.network.repeat_and_reset(one, other)
        return f"{one}>{other}, {count} writes" if count else None

    def heal(self) -> None:
        """It is dialled anew."""
