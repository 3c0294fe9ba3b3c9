"""Commands as pages have them, and running them.

What a page shows as commands stands in blocks that are indented, or in inline code that begins with `tenure `
or `tenured `. Three things are put in: ports that are free for those of a development cluster, the names of
machines, and what the page leaves to the reader (`KEY`, `…`).
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dev_process import environment, until

ROOT: Final = Path(__file__).resolve().parents[2]
TIMEOUT_S: Final = 120.0

REMARK: Final = re.compile(r"\s{3,}[^\s'\"-].*$")
"""What stands beside a command, in a column of its own."""


class Page:
    """One page; each of its commands is to be taken once."""

    def __init__(self, name: str, *, shown: tuple[str, ...] = ()) -> None:
        """`shown`: the beginnings of blocks that are no commands."""
        self.name = name
        text = (ROOT / name).read_text(encoding="utf-8")
        self.left: list[str] = []
        met = set()
        for block in _blocks(text):
            beginning = next((beginning for beginning in shown if block[0].startswith(beginning)), None)
            if beginning is None:
                self.left += _commands(block)
            met.add(beginning)
        assert met - {None} == set(shown), f"{name} has no block like {set(shown) - met}"
        self.inline = re.findall(r"`(tenured? [^`]+)`", re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE))

    def take(self, beginning: str) -> str:
        """The first command that is left and begins so."""
        found = next((command for command in self.left if command.startswith(beginning)), None)
        assert found is not None, f"{self.name} has no command {beginning!r} (any more): {self.left}"
        self.left.remove(found)
        return found

    def leave(self, reasons: Mapping[str, str]) -> None:
        """Nothing may be left but what begins like one of these, which each must be there for."""
        unread = [command for command in self.left if not any(command.startswith(start) for start in reasons)]
        assert unread == [], f"{self.name}: neither run nor listed with a reason"
        idle = [start for start in reasons if not any(command.startswith(start) for command in self.left)]
        assert idle == [], f"{self.name}: listed, and not there (any more)"


def _blocks(text: str) -> list[list[str]]:
    """Indented blocks, those within lists included; fenced ones are of other languages."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks: list[list[str]] = []
    before = ""
    for line in text.splitlines():
        if re.match(r" {4}", line) and (not before.strip() or before.startswith("    ")):
            if before.startswith("    ") and blocks:
                blocks[-1].append(line.strip() if not blocks[-1] else line[4:])
            else:
                blocks.append([line[4:]])
        before = line if line.strip() else ""
    return [[line.strip() for line in block] for block in blocks]


def _commands(block: list[str]) -> list[str]:
    commands: list[str] = []
    for line in block:
        command = REMARK.sub("", line)
        if commands and commands[-1].endswith("\\"):
            commands[-1] = f"{commands[-1][:-1].rstrip()} {command}"
        else:
            commands.append(command)
    return commands


class Bench:
    """A directory in which commands are run as by a reader who has Tenure in `.venv` and on the path."""

    def __init__(self, directory: Path, ports: Mapping[int, int], **variables: str) -> None:
        self.directory = directory
        self._ports = ports
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ".venv").symlink_to(Path(sys.prefix))
        (directory / "bin").mkdir()
        self._environment = {
            **environment(),
            "PATH": f"{directory / 'bin'}:{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}",
            **variables,
        }
        self._begun: dict[int, tuple[subprocess.Popen[str], Path]] = {}

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        for process, _ in self._begun.values():
            if process.poll() is None:
                self.end(process)

    def program(self, path: str, text: str) -> None:
        """What the page takes for granted: a script of the reader's own."""
        (self.directory / path).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self.directory / path).chmod(0o755)

    def put_in(self, command: str, said: Mapping[str, str]) -> str:
        for old, new in said.items():
            assert old in command, command
            command = command.replace(old, new)
        return re.sub(r"\b(\d{4})\b", lambda port: str(self._ports.get(int(port[1]), port[1])), command)

    def run(self, command: str, said: Mapping[str, str] | None = None, *, code: int = 0) -> str:
        """Run it to its end; what it prints."""
        ended = subprocess.run(
            ["bash", "-c", self.put_in(command, said or {})],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == code, f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def begin(self, command: str) -> "subprocess.Popen[str]":
        """Begin one that goes on. What it prints goes to a file beside."""
        log = self.directory / f"said-{len(self._begun)}"
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.put_in(command, {})}"],
                cwd=self.directory,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._begun[process.pid] = process, log
        return process

    def end(self, process: "subprocess.Popen[str]") -> str:
        """Ctrl-C; what it has printed."""
        process.send_signal(signal.SIGINT)
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return self._begun[process.pid][1].read_text(encoding="utf-8")

    def glimpse(self, command: str, *wanted: str) -> str:
        """Begin one that goes on, wait until it has printed what is wanted, and end it."""
        process = self.begin(command)
        log = self._begun[process.pid][1]
        until(
            f"{command} to print {wanted}",
            lambda: all(word in log.read_text(encoding="utf-8") for word in wanted) or process.poll(),
        )
        text = self.end(process)
        assert all(word in text for word in wanted), text
        return text

    def until_it_works(self, command: str) -> str:
        """Run it again and again until it exits with 0."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self.run(command)
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
