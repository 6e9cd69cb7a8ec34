"""Runs `namesrvctl` against servers in the test's own process."""

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import yaml
from typer.testing import CliRunner

from namesrv_client.ctl.app import app
from tests.support.in_process import InProcess
from tests.support.scripted_server import HOST, frame

# the command as a process
COMMAND = (sys.executable, "-m", "namesrv_client.ctl")
_ENVIRONMENT = {"NAMESRV_ADDR": None, "COLUMNS": None, "NO_COLOR": None, "FORCE_COLOR": None, "TZ": "UTC"}


class Result(NamedTuple):
    """What came of it."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Standard output."""
        return self.out.splitlines()

    @property
    def cells(self) -> list[list[str]]:
        """A table's rows, cut where two blanks are; heads first."""
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in self.lines]

    @property
    def problems(self) -> list[str]:
        """What it complained of."""
        return [line.removeprefix("namesrvctl: ") for line in self.err.splitlines()]

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)

    @property
    def yaml(self) -> Any:
        """Standard output as YAML."""
        return yaml.safe_load(self.out)


def run(*args: str, env: dict[str, str] | None = None, typed: str | None = None) -> Result:
    """Run it in this thread."""
    runner = CliRunner(env={**_ENVIRONMENT, **(env or {})})
    done = runner.invoke(app, list(args), input=typed, prog_name="namesrvctl", catch_exceptions=False)
    return Result(done.exit_code, done.stdout, done.stderr)


async def ctl(*args: str, env: dict[str, str] | None = None) -> Result:
    """Run it beside this loop, which goes on serving."""
    return await asyncio.to_thread(run, *args, env=env)


def at(*servers: "InProcess | ApacheFront | str") -> list[str]:
    """The options that name servers."""
    return [word for server in servers for word in ("-s", server if isinstance(server, str) else address_of(server))]


def address_of(server: "InProcess | ApacheFront") -> str:
    """Host and port."""
    host, port = server.address
    return f"{host}:{port}"


@contextmanager
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield f"{HOST}:{bound.getsockname()[1]}"


class ApacheFront:
    """Makes one of our servers look like Apache's, as an async context manager.

    It closes the connection on a header that is not RocketMQ's, and answers some codes itself, as Java spells it.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        # code -> the body of a successful answer; others are forwarded
        self.bodies: dict[int, bytes] = {}
        # code -> the remark of a refusal
        self.remarks: dict[int, str] = {}
        # (serialize type, code) of each question that was answered, or refused for its type
        self.asked: list[tuple[int, int]] = []
        self.address = (HOST, 0)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._taken, HOST, 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(*self._target)
        try:
            while True:
                kind, header, data = await _read_frame(reader)
                if kind == 77:
                    self.asked.append((kind, 0))
                    return
                question = json.loads(header)
                said = {"flag": 1, "opaque": question["opaque"], "language": "JAVA", "version": 479}
                if question["code"] in self.bodies:
                    writer.write(frame({**said, "code": 0}, self.bodies[question["code"]]))
                elif question["code"] in self.remarks:
                    writer.write(frame({**said, "code": 1, "remark": self.remarks[question["code"]]}))
                else:
                    their_writer.write(data)
                    writer.write((await _read_frame(their_reader))[2])
                self.asked.append((kind, question["code"]))
        except (OSError, EOFError):
            pass
        finally:
            writer.transport.abort()
            their_writer.transport.abort()


async def _read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """Serialize type, header, and all of its bytes."""
    head = await reader.readexactly(8)
    length, word = struct.unpack(">II", head)
    rest = await reader.readexactly(length - 4)
    return word >> 24, rest[: word & 0xFFFFFF], head + rest
