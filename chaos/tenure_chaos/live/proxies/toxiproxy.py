"""A Toxiproxy server as the bench uses it: toxiproxy-python with its faults mended.

The library keeps host and port in class attributes, so a process can talk to one server only; it waits for
ever; an answer of 500 ends as a KeyError somewhere else; creating a proxy asks for all of them first; and its
``populate`` leaves half of the list behind when one can't be made, and returns only the new ones. Here each
server has a subclass of its consumer with an address of its own, every call a time-out, every refusal is one
of the exceptions below, and ``populate`` makes all or none.

Calls block: from asyncio they go through a thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from tenure_chaos.live.lines import Stream

CALL_TIMEOUT_S: Final = 30.0
"""How long the server may take for one call. Adding or removing a toxic waits until every connection can be
interrupted, and one whose receiver is paused can't. So this is longer than any fault lasts."""

TOXICS: Final = (
    "bandwidth",
    "latency",
    "limit_data",
    "reset_peer",
    "slicer",
    "slow_close",
    "timeout",
)
"""What every server of version 2 knows."""


class ProxyError(Exception):
    """The server refused, failed, or did not answer. The message says which call it was."""


class ServerStuck(Exception):
    """The server does not answer any more. No ProxyError, since nothing can be expected of it again: it does
    all calls behind the one that hangs."""


class NoSuchProxy(ProxyError):
    """There is no proxy, or no toxic, of that name."""


class AlreadyThere(ProxyError):
    """There is a proxy, or a toxic, of that name."""


class BadRequest(ProxyError):
    """The server does not take that: an unknown type, a missing field."""


_MENDED: Final[Mapping[type[Exception], type[ProxyError]]] = {
    NotFound: NoSuchProxy,
    ProxyExists: AlreadyThere,
    InvalidToxic: BadRequest,
}


@dataclass(frozen=True)
class Toxic:
    """Something that is done to what flows through a proxy in one direction."""

    name: str
    type: str
    stream: Stream
    toxicity: float = 1.0
    attributes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Proxy:
    """One proxy as its server described it."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[Toxic, ...] = ()

    @classmethod
    def told(cls, said: Mapping[str, Any]) -> "Proxy":
        return cls(
            name=said["name"],
            listen=said["listen"],
            upstream=said["upstream"],
            enabled=said["enabled"],
            toxics=tuple(_toxic(toxic) for toxic in said.get("toxics") or ()),
        )


def _toxic(said: Mapping[str, Any]) -> Toxic:
    return Toxic(said["name"], said["type"], said["stream"], said["toxicity"], said["attributes"])


class Server:
    """One server, at ``url``. Any number of them can be used at once."""

    def __init__(self, url: str, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is not a URL such as http://127.0.0.1:8474")
        self.url = f"http://{parts.hostname}:{parts.port or 8474}"
        self._timeout_s = timeout_s
        self._api: Any = type(
            "Consumer", (APIConsumer,), {"host": parts.hostname, "port": parts.port or 8474}
        )

    def __repr__(self) -> str:
        return f"Server({self.url!r})"

    # -- the server

    def version(self) -> str:
        """What it says it is. A server built by ``go install`` says "git"."""
        return str(self._json("get", "/version")["version"])

    def proxies(self) -> dict[str, Proxy]:
        return {name: Proxy.told(said) for name, said in self._json("get", "/proxies").items()}

    def reset(self) -> None:
        """Every proxy is enabled and has no toxics."""
        self._call("post", "/reset")

    # -- proxies

    def create(self, name: str, upstream: str, listen: str = "127.0.0.1:0", *, enabled: bool = True) -> Proxy:
        """Raises AlreadyThere, or ProxyError if the address can't be had."""
        asked = {"name": name, "upstream": upstream, "listen": listen, "enabled": enabled}
        return Proxy.told(self._json("post", "/proxies", json=asked))

    def populate(self, wanted: Sequence[Proxy]) -> list[Proxy]:
        """Have all of these as they are described, without toxics, and return all of them.

        One that is there under the name is taken away first. If one can't be made, none of those that were
        made here is left, and the ProxyError of that one is raised.
        """
        present = self.proxies()
        made: list[Proxy] = []
        try:
            for proxy in wanted:
                if proxy.name in present:
                    self.delete(proxy.name)
                made.append(self.create(proxy.name, proxy.upstream, proxy.listen, enabled=proxy.enabled))
        except ProxyError:
            for proxy in made:
                self.delete(proxy.name)
            raise
        return made

    def proxy(self, name: str) -> Proxy:
        """Raises NoSuchProxy."""
        return Proxy.told(self._json("get", f"/proxies/{name}"))

    def update(self, name: str, *, upstream: str | None = None, enabled: bool | None = None) -> Proxy:
        """Another upstream closes its connections. A proxy that is not enabled refuses new ones, and has
        closed those it had. Raises NoSuchProxy."""
        asked: dict[str, Any] = {"upstream": upstream, "enabled": enabled}
        asked = {key: value for key, value in asked.items() if value is not None}
        if upstream is not None and enabled is None:
            # The server stops a proxy whose address changes, and starts it only if it is told to.
            asked["enabled"] = self.proxy(name).enabled
        return Proxy.told(self._json("post", f"/proxies/{name}", json=asked))

    def delete(self, name: str) -> None:
        """Raises NoSuchProxy."""
        self._call("delete", f"/proxies/{name}")

    # -- toxics

    def add_toxic(
        self,
        proxy: str,
        type_: str,
        *,
        name: str = "",
        stream: Stream = "downstream",
        toxicity: float = 1.0,
        **attributes: int,
    ) -> Toxic:
        """Raises NoSuchProxy, AlreadyThere or BadRequest."""
        asked = {
            "name": name or f"{type_}_{stream}",
            "type": type_,
            "stream": stream,
            "toxicity": toxicity,
            "attributes": attributes,
        }
        return _toxic(self._json("post", f"/proxies/{proxy}/toxics", json=asked))

    def remove_toxic(self, proxy: str, name: str) -> None:
        """Raises NoSuchProxy."""
        self._call("delete", f"/proxies/{proxy}/toxics/{name}")

    # -- one call

    def _json(self, method: str, path: str, **given: Any) -> Any:
        answer = self._call(method, path, **given)
        try:
            return answer.json()
        except ValueError as error:
            raise ProxyError(f"{method.upper()} {self.url}{path}: not JSON: {answer.content!r}") from error

    def _call(self, method: str, path: str, **given: Any) -> Any:
        what = f"{method.upper()} {self.url}{path}"
        try:
            answer = getattr(self._api, method)(path, timeout=self._timeout_s, **given)
        except (NotFound, ProxyExists, InvalidToxic) as error:
            raise _MENDED[type(error)](f"{what}: {_words(error.args[0])}") from error
        except requests.Timeout as error:
            raise ServerStuck(f"{what}: no answer within {self._timeout_s:g} s") from error
        except requests.RequestException as error:
            raise ProxyError(f"{what}: {error}") from error
        if answer.status_code == 503 and b"<title>Timeout</title>" in answer.content:
            # Its own handler was waited for in vain, by its front, a little before we would have given up.
            raise ServerStuck(f"{what}: the server itself says that it takes too long")
        if answer.status_code >= 300:
            raise ProxyError(f"{what}: {answer.status_code} {_words(answer.content)}")
        return answer


def _words(content: object) -> str:
    return content.decode(errors="replace").strip() if isinstance(content, bytes) else str(content)
