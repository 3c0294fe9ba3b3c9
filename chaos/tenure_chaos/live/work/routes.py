"""Which nodes a client knows, and where it really reaches them. Changes while it works."""

from collections.abc import Mapping


class Routes:
    """Nodes are named by their own URLs, which is how they name their leader. Those that have gone are still
    reachable, if there is anything, for calls that are under way."""

    def __init__(self, routes: Mapping[str, str]) -> None:
        """``routes``: where each URL is really reached."""
        self._all = dict(routes)
        self.urls = tuple(routes)
        self.version = 0
        """Another one after each change."""

    def change(self, routes: Mapping[str, str]) -> None:
        """These are the nodes from now on."""
        self._all.update(routes)
        self.urls = tuple(routes)
        self.version += 1

    def get(self, url: str) -> str | None:
        """None for a node that this client has not been told of."""
        return self._all.get(url)

    def addresses(self) -> list[str]:
        """Of all nodes that there are."""
        return [self._all[url] for url in self.urls]
