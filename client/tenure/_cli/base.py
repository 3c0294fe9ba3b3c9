"""What all commands share: the common options, the client they run with, and refusals as exit codes."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tenure._cli.console import Console, Format
from tenure._durations import parse_ms
from tenure._endpoints import DEFAULT_ENDPOINTS
from tenure.errors import LeaseUnavailable, TenureError

if TYPE_CHECKING:
    from tenure.aio import Client

T = TypeVar("T")


@dataclass
class Settings:
    """The options that every command has. What is given after the command's name wins."""

    endpoints: str = field(default_factory=lambda: os.environ.get("TENURE_ENDPOINTS") or DEFAULT_ENDPOINTS)
    credential_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout_ms: int = 10_000
    output: Format = "text"
    hints: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    """What the command is about, where no argument of that name says so."""

    def credential(self) -> str | None:
        if self.credential_file is None:
            return os.environ.get("TENURE_CREDENTIAL") or None
        try:
            return self.credential_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"--credential-file: {error}") from None

    def client(self) -> Client:
        """A client of the cluster. Raises InvalidRequest."""
        from tenure.aio import connect  # here, so that --help need not load it

        cert_file, key_file = self.cert_file, self.key_file
        if cert_file is None:
            # A certificate and its key are named in the same place: the one of the environment goes with none
            # of the command line.
            cert_file, key_file = _path("TENURE_CERT_FILE"), key_file or _path("TENURE_KEY_FILE")
        return connect(
            self.endpoints,
            credential=self.credential(),
            ca_file=self.ca_file or _path("TENURE_CA_FILE"),
            cert_file=cert_file,
            key_file=key_file,
            timeout=self.timeout_ms / 1000,
        )


def _path(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None


if TYPE_CHECKING:
    _Milliseconds = click.ParamType[int]
else:
    _Milliseconds = click.ParamType  # generic for the type checker only, in older versions of click


class Duration(_Milliseconds):
    """A duration with its unit, as milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_ms(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _setting(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        settings = context.ensure_object(Settings)
        if value is not None:
            setattr(settings, name, value)

    return keep


def common_options() -> list[click.Parameter]:
    """--endpoints, --credential-file, the files for TLS, --timeout and -o, kept in the context's Settings."""

    def option(*names: str, keep: str, **more: Any) -> click.Option:
        # A name of its own, which no argument of a command has: KEY is one.
        return click.Option((f"settings_{keep}", *names), callback=_setting(keep), expose_value=False, **more)

    return [
        option(
            "--endpoints",
            keep="endpoints",
            metavar="URLS",
            help="Comma-separated URLs of nodes. [env: TENURE_ENDPOINTS; "
            "default: ports 7601 to 7603 of 127.0.0.1]",
        ),
        option(
            "--credential-file",
            keep="credential_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="File that holds the credential, for nodes that ask for one. "
            "[env: TENURE_CREDENTIAL holds it itself]",
        ),
        option(
            "--ca-file",
            keep="ca_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Authority, in PEM, that the nodes' certificates are of, for https URLs. "
            "[env: TENURE_CA_FILE; default: those of this machine]",
        ),
        option(
            "--cert",
            "--cert-file",
            keep="cert_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Certificate, in PEM, to show to nodes that ask for one. [env: TENURE_CERT_FILE]",
        ),
        option(
            "--key",
            "--key-file",
            keep="key_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Its private key, in PEM, if it is not in the same file. [env: TENURE_KEY_FILE]",
        ),
        option(
            "--timeout",
            keep="timeout_ms",
            type=Duration(),
            help="How long to try for an answer; a node that hangs takes up to 3s of it before another is "
            "asked. [default: 10s]",
        ),
        option(
            "-o",
            "--output",
            keep="output",
            type=click.Choice(["text", "json"]),
            help="Form of the output. [default: text]",
        ),
    ]


def command(
    name: str, *, examples: str, cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with the common options, whose refusals become an exit code and a sentence."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            context = click.get_current_context()
            settings = context.ensure_object(Settings)
            try:
                function(settings, Console(settings.output), **arguments)
            except TenureError as error:
                key = _key_of(error, arguments, settings)
                context.exit(Console(settings.output).refusal(error, settings.hints, key=key))

        epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples.splitlines())
        made = click.command(name, cls=cls, epilog=epilog)(run)
        made.params += common_options()
        return made

    return decorate


def _key_of(error: TenureError, arguments: Mapping[str, Any], settings: Settings) -> str | None:
    """The key that a refusal is about, if the command has any."""
    keys: Sequence[str] = arguments.get("keys") or settings.keys
    if len(keys) > 1:
        holder = error.holder if isinstance(error, LeaseUnavailable) else None
        return holder.key if holder is not None else None
    key: str | None = arguments.get("key")
    return keys[0] if keys else key


def perform(settings: Settings, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run ``work`` with a client. SIGINT and SIGTERM cancel it, so that a waiting acquire is abandoned and
    not left behind."""

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            async with settings.client() as client:
                return await work(client)
        except asyncio.CancelledError:
            if terminated:
                raise SystemExit(128 + signal.SIGTERM) from None
            raise

    return asyncio.run(main())
