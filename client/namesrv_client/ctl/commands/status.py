"""`status`: whether each server answers and is ready, and how much it knows."""

from contextlib import suppress
from typing import Any, Final

import msgspec
from rich.text import Text

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, table
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Servers
from namesrv_client.ctl.wording import lasting
from namesrv_remoting.errors import RemotingError, ResponseError

_COLUMNS = ("server", "state", "protocol", "name", "version", "up", "brokers", "topics", "connections", "revision")
# clients get their routes from it; Apache's server does not say, and that it answers has to do
_HEALTHY: Final = ("ready", "answers")


def status(options: Options) -> None:
    """Show whether each NameServer answers and is ready, and how much it knows.

    Exits with 1 if one of them is unreachable, not ready or draining.
    """
    show(options, _status)


async def _status(servers: Servers) -> Report:
    answers = await servers.ask(_members)
    is_healthy = all(found["state"] in _HEALTHY for found in answers.given.values())
    not_ready = [
        f"{server}: {found['readiness'] or 'not ready'}"
        for server, found in answers.given.items()
        if found.get("ready") is False
    ]
    return Report(
        {
            "healthy": is_healthy and len(answers.given) == len(answers.outcomes),
            "servers": answers.documents(lambda found: found),
        },
        table(_COLUMNS, [_row(server, found) for server, found in answers.outcomes.items()]),
        max(answers.code(needs_all=True), ExitCode.OK if is_healthy else ExitCode.NO),
        [*answers.problems(), *not_ready],
    )


async def _members(server: NameServer) -> dict[str, Any]:
    """What the server says of itself, or, if it is Apache's, what can be counted."""
    info = await server.info()
    if info is not None:
        state = "draining" if info.draining else "ready" if info.ready else "not ready"
        counts = {"brokers": info.brokers, "topics": info.topics}
        return {"protocol": "native", "state": state, **counts, **msgspec.to_builtins(info)}
    groups = (await server.cluster_info()).broker_addr_table.values()
    topics: int | None = None
    # can be switched off in Apache's server
    with suppress(ResponseError):
        topics = len(await server.topics())
    brokers = sum(len(group.broker_addrs) for group in groups)
    return {"protocol": "rocketmq", "state": "answers", "brokers": brokers, "topics": topics}


def _row(server: str, found: dict[str, Any] | RemotingError) -> tuple[object, ...]:
    if isinstance(found, RemotingError):
        found = {"state": "refuses" if isinstance(found, ResponseError) else "unreachable"}
    state = Text(found["state"], style="green" if found["state"] in _HEALTHY else "red")
    about = (found.get("protocol"), found.get("nameserver"), found.get("version"), lasting(found.get("uptime_seconds")))
    return (server, state, *about, *(found.get(count) for count in _COLUMNS[6:]))
