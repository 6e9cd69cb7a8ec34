"""`status`: whether each server answers and is ready, and how much it knows."""

from dataclasses import dataclass
from typing import Any

import msgspec
from rich.text import Text

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Answers, Servers
from namesrv_client.ctl.tables import table
from namesrv_client.ctl.wording import lasting
from namesrv_remoting.bodies.extension_answers import ServerInfo
from namesrv_remoting.errors import ResponseError


@dataclass(frozen=True, slots=True)
class Status:
    """One server: what it says of itself, or, if it is Apache's, what can be counted."""

    protocol: str
    brokers: int
    # None: the server does not tell
    topics: int | None
    info: ServerInfo | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether clients get their routes from it. Apache's does not say; that it answers has to do."""
        return self.info is None or (self.info.ready and not self.info.draining)

    @property
    def state(self) -> str:
        """In a word."""
        if self.info is None:
            return "answers"
        if self.info.draining:
            return "draining"
        return "ready" if self.info.ready else "not ready"

    def document(self) -> dict[str, Any]:
        """Its members."""
        members = {} if self.info is None else msgspec.to_builtins(self.info)
        counts = {"protocol": self.protocol, "state": self.state, "brokers": self.brokers, "topics": self.topics}
        return {**counts, **members}


def status(options: Options) -> None:
    """Show whether each NameServer answers and is ready, and how much it knows.

    Exits with 1 if one of them is unreachable, not ready or draining.
    """
    show(options, _status)


async def _status(servers: Servers) -> Report:
    answers = await servers.ask(_ask)
    healthy = all(status.is_healthy for status in answers.given.values())
    return Report(
        {
            "healthy": healthy and not answers.refused and not answers.unreachable,
            "servers": answers.documents(Status.document),
        },
        table(_COLUMNS, _rows(answers)),
        max(answers.code(needs_all=True), exit_codes.OK if healthy else exit_codes.NO),
        [*answers.problems(), *_reasons(answers)],
    )


async def _ask(server: NameServer) -> Status:
    info = await server.info()
    if info is not None:
        return Status("native", info.brokers, info.topics, info)
    groups = (await server.cluster_info()).broker_addr_table.values()
    try:
        topics = len(await server.topics())
    except ResponseError:
        # can be switched off in Apache's server
        topics = None
    return Status("rocketmq", sum(len(group.broker_addrs) for group in groups), topics)


_COLUMNS = ("server", "state", "protocol", "name", "version", "up", "brokers", "topics", "connections", "revision")


def _rows(answers: Answers[Status]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for server in answers.servers:
        found = answers.given.get(server)
        if found is None:
            state = "refuses" if server in answers.refused else "unreachable"
            rows.append((server, Text(state, style="red"), *(None for _ in _COLUMNS[2:])))
            continue
        info = found.info
        rows.append(
            (
                server,
                Text(found.state, style="green" if found.is_healthy else "red"),
                found.protocol,
                None if info is None else info.nameserver,
                None if info is None else info.version,
                None if info is None else lasting(info.uptime_seconds),
                found.brokers,
                found.topics,
                None if info is None else info.connections,
                None if info is None else info.revision,
            )
        )
    return rows


def _reasons(answers: Answers[Status]) -> list[str]:
    return [
        f"{server}: {status.info.readiness or 'not ready'}"
        for server, status in answers.given.items()
        if status.info is not None and not status.info.ready
    ]
