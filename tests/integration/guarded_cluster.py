"""A cluster of real processes that asks for credentials."""

from pathlib import Path
from typing import Any

import aiohttp
from live_cluster import LiveCluster, LiveNode, until
from raw_http import HttpAnswer

from tenure_cluster.first_administrator import FILE_NAME


class GuardedCluster(LiveCluster):
    """`root` is what the first administrator shows, once the cluster is entered."""

    def __init__(self, directory: Path, *, nodes: int = 3, **sections: dict[str, Any]) -> None:
        super().__init__(directory, nodes=nodes, settings={"auth": {"required": True}, **sections})
        self.root = ""

    async def __aenter__(self) -> "GuardedCluster":
        await super().__aenter__()
        try:
            self.root = await until(self._first, 30, "the first administrator's file")
        except BaseException:
            await self.__aexit__(RuntimeError, RuntimeError(), None)
            raise
        return self

    @property
    def urls(self) -> str:
        return ",".join(node.url for node in self.nodes.values())

    def files(self) -> list[Path]:
        """The administrator's file, at whichever nodes there is one."""
        paths = [node.data_dir / FILE_NAME for node in self.nodes.values()]
        return [path for path in paths if path.exists()]

    async def _first(self) -> str:
        """What a file has that a node lets in."""
        for path in self.files():
            shown = path.read_text(encoding="ascii").strip()
            answer = await self._get(next(iter(self.nodes.values())), "/v1/cluster", shown, 2.0)
            if answer is not None and answer.status == 200:
                return shown
        return ""

    async def get(self, node: LiveNode, path: str, timeout_s: float = 2.0) -> HttpAnswer | None:
        return await self._get(node, path, self.root, timeout_s)

    async def _get(self, node: LiveNode, path: str, shown: str, timeout_s: float) -> HttpAnswer | None:
        headers = {"Authorization": f"Bearer {shown}"} if shown else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as session,
                session.get(node.url + path, headers=headers) as answer,
            ):
                return HttpAnswer(answer.status, b"", await answer.read())
        except (aiohttp.ClientError, TimeoutError):
            return None
