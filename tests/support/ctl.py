"""`namesrvctl` run against servers in the test's own process."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from typer.testing import CliRunner

from namesrv_client.ctl.app import app
from tests.support.apache_server import ApacheFront
from tests.support.dead_ends import refusing_port
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import NamesrvPeer
from tests.support.scripted_server import HOST

# the command as a process
COMMAND = (sys.executable, "-m", "namesrv_client.ctl")
_NAMES = ("NAMESRV_ADDR", "NAMESRV_ACCESS", "NAMESRV_ACCESS_KEY", "NAMESRV_SECRET_KEY", "NAMESRV_SECRET_KEY_FILE")
_TLS = (
    "NAMESRV_TLS",
    "NAMESRV_TLS_CA_FILE",
    "NAMESRV_TLS_CRL_FILE",
    "NAMESRV_TLS_CERT_FILE",
    "NAMESRV_TLS_KEY_FILE",
    "NAMESRV_TLS_VERIFY_HOST",
)
_ENVIRONMENT = {**dict.fromkeys([*_NAMES, *_TLS]), "COLUMNS": None, "NO_COLOR": None, "FORCE_COLOR": None, "TZ": "UTC"}
# the reason for which an Apache server has no response to a request of our own
NOT_SUPPORTED = "refused with code 3: not supported by Apache's NameServer"
# an access file by which this machine may read the routes of topics T and V
TWO_TOPICS = """
[accounts.here]
networks = ["127.0.0.0/8"]
may = ["broker-control", { access = "route-read", topics = ["T", "V"] }]
"""
# saved contexts of the developer must not affect tests
_NO_CONTEXTS = {"XDG_CONFIG_HOME": "/nonexistent"}


class Result(NamedTuple):
    """Exit code and output of a run."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def cells(self) -> list[list[str]]:
        """Rows of a table, split at two blanks, header first."""
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in self.lines]

    @property
    def problems(self) -> list[str]:
        return [line.removeprefix("namesrvctl: ") for line in self.err.splitlines()]

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def yaml(self) -> Any:
        return yaml.safe_load(self.out)


def run(*args: str, env: dict[str, str] | None = None) -> Result:
    """Run namesrvctl in this thread."""
    runner = CliRunner(env={**_ENVIRONMENT, **_NO_CONTEXTS, **(env or {})})
    done = runner.invoke(app, list(args), prog_name="namesrvctl", catch_exceptions=False)
    return Result(done.exit_code, done.stdout, done.stderr)


async def ctl(*args: str, env: dict[str, str] | None = None) -> Result:
    """Run namesrvctl in a thread, while this loop serves."""
    return await asyncio.to_thread(run, *args, env=env)


def at(*servers: InProcess | ApacheFront | str) -> list[str]:
    """The options that name these servers."""
    return [word for server in servers for word in ("-s", server if isinstance(server, str) else address_of(server))]


def address_of(server: InProcess | ApacheFront) -> str:
    """Host and port."""
    found = server.address
    return found if isinstance(found, str) else f"{found[0]}:{found[1]}"


@asynccontextmanager
async def one_server(
    path: Path, protocol: str = "native", *, access: str = "", views: str = "", **settings: Any
) -> AsyncIterator[tuple[InProcess, str]]:
    """One of our servers and its address; with protocol="rocketmq" it looks like an Apache server.

    `access` and `views` are texts of its access file and its address views file.
    """
    for setting, text in (("access", access), ("address_views", views)):
        if text:
            file = path.with_name(f"{path.name}-{setting}.toml")
            file.touch(mode=0o600)
            file.write_text(text, encoding="utf-8")
            settings[setting] = str(file)
    async with namesrv_in_process(path, **settings) as server, ApacheFront(server.address) as apache:
        yield server, address_of(apache if protocol == "rocketmq" else server)


@asynccontextmanager
async def two_servers(path: Path) -> AsyncIterator[tuple[NamesrvPeer, NamesrvPeer, str, str]]:
    """Peers of two servers, and the addresses of the servers."""
    async with one_server(path / "1") as (first, one), one_server(path / "2") as (second, two):
        yield await first.connect(), await second.connect(), one, two


@contextmanager
def refusing_address() -> Iterator[str]:
    """An address that refuses connections."""
    with refusing_port() as bound:
        yield f"{HOST}:{bound.getsockname()[1]}"
