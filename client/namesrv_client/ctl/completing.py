"""Completion of the names of topics, brokers and clusters in a shell.

The requests go to the servers that the line names so far, as those of the command would. The shell waits for the names:
they arrive within a second; after an error there are none, and nothing is printed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import typer

from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.registering import options_on_line
from namesrv_client.ctl.running import connected
from namesrv_remoting.errors import RequestTimeoutError
from namesrv_runtime import loops

# A second, less the time in which the command starts.
_SECONDS: Final = 0.6
# Any peer may register any name, and the shell inserts completions unquoted: a name with `|`, `;` or `$(` would be run.
_HARMLESS: Final = re.compile(r"[\w%.][\w%.+:@/-]*", re.ASCII)


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin with the text."""
    return _offered(ctx, incomplete, lambda server: server.topics())


def broker_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Broker groups that begin with the text."""

    async def names(server: NameServer) -> Iterable[str]:
        return (await server.cluster_info()).broker_addr_table

    return _offered(ctx, incomplete, names)


def cluster_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Clusters that begin with the text."""

    async def names(server: NameServer) -> Iterable[str]:
        return (await server.cluster_info()).cluster_addr_table

    return _offered(ctx, incomplete, names)


def _offered(
    ctx: typer.Context, incomplete: str, request: Callable[[NameServer], Awaitable[Iterable[str]]]
) -> list[str]:
    async def in_time(server: NameServer) -> Iterable[str]:
        try:
            async with asyncio.timeout(_SECONDS):
                return await request(server)
        except TimeoutError:
            raise RequestTimeoutError from None

    async def ask() -> set[str]:
        async with connected(options_on_line(ctx)) as servers:
            return {name for names in (await servers.ask(in_time)).given.values() for name in names}

    try:
        names = loops.run(ask)
    except Exception:  # noqa: BLE001 - a traceback would stand in the middle of the user's command line
        return []
    return sorted(name for name in names if name.startswith(incomplete) and _HARMLESS.fullmatch(name))
