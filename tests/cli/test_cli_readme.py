"""The configuration files that the README has its reader write make one cluster of three nodes."""

import re
from pathlib import Path

from tenure_cluster.config import load

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_three_files_differ_where_they_must_and_agree_in_the_rest(tmp_path: Path) -> None:
    [first] = re.findall(r"```toml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    configs = []
    for number in (1, 2, 3):

        def own_line(line: re.Match[str], number: int = number) -> str:
            """The comment names what n2 and n3 have in the place of the value's last word."""
            mine = re.findall(r"\bn\d\b|\b\d{4}\b", line["own"] + line["others"])[number - 1]
            return f'{line["name"]} = "{line["same"]}{mine}"'

        pattern = r'(?m)^(?P<name>\w+) = "(?P<same>[^"]*?)(?P<own>n1|\d{4})"(?P<others> +#.*)$'
        text = re.sub(pattern, own_line, first)
        (tmp_path / f"n{number}.toml").write_text(text)
        configs.append(load(tmp_path / f"n{number}.toml", {}))
    assert [config.node_id for config in configs] == ["n1", "n2", "n3"]
    assert [config.data_dir for config in configs] == [tmp_path / f"n{number}" for number in (1, 2, 3)]
    for config in configs:
        assert config.members == configs[0].members
        assert config.cluster_id == configs[0].cluster_id
        own = config.members[config.node_id]
        assert (own.peer, own.http) == (config.peer.listen, f"http://{config.http.listen}")
