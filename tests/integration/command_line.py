"""The command line `tenure` as tests drive it."""

import json
import subprocess
import sys
from dataclasses import dataclass

from click.testing import CliRunner
from dev_process import environment

from tenure._cli.group import cli


@dataclass
class Done:
    returncode: int
    stdout: bytes
    stderr: bytes


class Tenure:
    """The command line, told where the cluster is by TENURE_ENDPOINTS. It runs in this process, except in
    `process`."""

    def __init__(self, endpoints: str) -> None:
        self.environment = environment() | {"TENURE_ENDPOINTS": endpoints}

    def __call__(self, *arguments: str, stdin: bytes | None = None) -> Done:
        done = CliRunner(env=self.environment).invoke(cli, arguments, prog_name="tenure", input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout_bytes, done.stderr_bytes)

    def process(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tenure.cli", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ok(self, *arguments: str, stdin: bytes | None = None) -> dict:
        """The JSON document of a command that must succeed, silently on standard error."""
        done = self(*arguments, "-o", "json", stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done.stderr
        return json.loads(done.stdout)

    def refused(self, code: int, *arguments: str) -> dict:
        """The JSON document of a command that must be refused; the same is said to people on standard
        error."""
        done = self(*arguments, "-o", "json")
        assert done.returncode == code, (done.stdout, done.stderr)
        assert done.stderr.startswith(b"tenure: ")
        return json.loads(done.stdout)

    def text(self, *arguments: str) -> str:
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()
