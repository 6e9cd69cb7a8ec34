"""What a shell offers for the names of topics, brokers and clusters.

The servers that the line names so far are asked, as the command itself would ask them. The shell waits for the names:
they are there within a second, and an error offers none and prints nothing.
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

# what the start of the command leaves of a second
_SECONDS: Final = 0.6
# Names are anybody's, and the shell takes them into its line as they are: one with `|`, `;` or `$(` would be run.
_HARMLESS: Final = re.compile(r"[\w%.][\w%.+:@/-]*", re.ASCII)


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin like this."""
    return _offered(ctx, incomplete, lambda server: server.topics())


def broker_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Broker groups that begin like this."""

    async def names(server: NameServer) -> Iterable[str]:
        return (await server.cluster_info()).broker_addr_table

    return _offered(ctx, incomplete, names)


def cluster_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Clusters that begin like this."""

    async def names(server: NameServer) -> Iterable[str]:
        return (await server.cluster_info()).cluster_addr_table

    return _offered(ctx, incomplete, names)


def _offered(
    ctx: typer.Context, incomplete: str, question: Callable[[NameServer], Awaitable[Iterable[str]]]
) -> list[str]:
    async def in_time(server: NameServer) -> Iterable[str]:
        try:
            async with asyncio.timeout(_SECONDS):
                return await question(server)
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
