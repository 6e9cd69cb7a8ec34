"""`watch`: the routes of topics, and every change of them as it happens."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.commands.diff import Fact, Facts, route_facts
from namesrv_client.ctl.commands.topics import TopicsArgument, route_members
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Output, complain
from namesrv_client.ctl.running import follow
from namesrv_client.ctl.servers import Servers, problem, reason
from namesrv_client.ctl.tables import ABSENT
from namesrv_client.ctl.wording import moment, shown
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.errors import RemotingError

# a NAT or a proxy in between forgets a connection that is silent for long
_WAIT_SECONDS: Final = 25.0
# Apache's server cannot be waited for
_POLL_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 1.0


class _EnoughError(Exception):
    """As many changes as were asked for have been told."""


@dataclass(slots=True)
class _Watched:
    """One server, and what it said last."""

    server: NameServer
    # of the run that answered last, and the changes of that run that are known
    boot_id: str | None = None
    revision: int = 0
    # topic -> route; None: positively absent
    routes: dict[str, TopicRouteData | None] = field(default_factory=dict)
    # why it did not answer last
    trouble: str | None = None


def watch(
    options: Options,
    topics: TopicsArgument,
    changes: Annotated[
        int | None, typer.Option("--changes", min=1, help="Stop after this many changes.", show_default=False)
    ] = None,
) -> None:
    """Show the routes of topics, then every change as it happens, until Ctrl-C.

    Apache's NameServer does not support watches; it is asked every 2 s.
    """
    follow(options, lambda servers, output: _Watch(servers, output, list(dict.fromkeys(topics)), changes).run())


class _Watch:
    """Watches topics on all servers."""

    def __init__(self, servers: Servers, output: Output, topics: list[str], changes: int | None) -> None:
        self._servers = servers
        self._output = output
        self._topics = topics
        # None: until Ctrl-C
        self._left = changes

    async def run(self) -> int:
        """Until enough changes were seen; nobody to watch ends it at once."""
        answers = await self._servers.ask(lambda server: server.is_native())
        if not answers.given:
            complain(answers.problems())
            return answers.code()
        try:
            async with asyncio.TaskGroup() as tasks:
                for server in self._servers.all:
                    tasks.create_task(self._watch(_Watched(server)))
        except* _EnoughError:
            pass
        return exit_codes.OK

    async def _watch(self, watched: _Watched) -> None:
        while True:
            try:
                routes = await self._next(watched)
            except RemotingError as error:
                self._say(watched, reason(error))
                await self._servers.clock.sleep(_RETRY_SECONDS)
                continue
            if watched.trouble is not None:
                self._say(watched, None)
            for topic in self._topics:
                if topic in routes:
                    self._tell(watched, topic, routes[topic])

    async def _next(self, watched: _Watched) -> Mapping[str, TopicRouteData | None]:
        """What changed, as soon as something does or may have."""
        server = watched.server
        if not await server.is_native():
            if watched.routes:
                await self._servers.clock.sleep(_POLL_SECONDS)
            return await server.routes(self._topics)
        pulled = await server.pull_routes(
            self._topics,
            boot_id=watched.boot_id,
            since=watched.revision,
            wait_seconds=0.0 if watched.boot_id is None else _WAIT_SECONDS,
        )
        watched.boot_id, watched.revision = pulled.boot_id, pulled.revision
        return pulled.routes

    def _say(self, watched: _Watched, trouble: str | None) -> None:
        if trouble != watched.trouble:
            complain([problem(watched.server.address, trouble or "answers again")])
        watched.trouble = trouble

    def _tell(self, watched: _Watched, topic: str, new: TopicRouteData | None) -> None:
        is_first = topic not in watched.routes
        old = watched.routes.get(topic)
        watched.routes[topic] = new
        changed = _changed(_facts(old), _facts(new))
        if not is_first and (old is None) == (new is None) and not changed:
            return
        change = "first" if is_first else "vanished" if new is None else "appeared" if old is None else "changed"
        ts_ms = int(self._servers.clock.wall() * 1000)
        words = [moment(ts_ms), watched.server.address if len(self._servers.all) > 1 else None, topic]
        text = _sentence(change, new, changed)
        self._output.line(
            Text(shown("  ".join([*(word for word in words if word), text]))),
            {
                "ts_ms": ts_ms,
                "server": watched.server.address,
                "topic": topic,
                "change": change,
                "facts": {} if is_first else {name: {"old": a, "new": b} for name, (a, b) in changed.items()},
                "route": None if new is None else route_members(new),
            },
        )
        self._count(is_first=is_first)

    def _count(self, *, is_first: bool) -> None:
        if self._left is not None and not is_first:
            self._left -= 1
            if self._left == 0:
                raise _EnoughError


def _facts(data: TopicRouteData | None) -> Facts:
    if data is None:
        return {}
    addresses: dict[str, Fact] = {
        f"address of {group.broker_name}/{broker_id}": address
        for group in data.broker_datas
        for broker_id, address in sorted(group.broker_addrs.items())
    }
    return {**addresses, **route_facts(data)}


def _changed(old: Facts, new: Facts) -> dict[str, tuple[Fact, Fact]]:
    return {
        name: (old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)
    }


def _sentence(change: str, new: TopicRouteData | None, changed: Mapping[str, tuple[Any, Any]]) -> str:
    if new is None:
        return "absent" if change == "first" else "vanished"
    if change == "changed":
        return "; ".join(f"{name}: {_word(old)} -> {_word(now)}" for name, (old, now) in changed.items())
    names = sorted(queues.broker_name for queues in new.queue_datas)
    return f"{'' if change == 'first' else 'appeared '}on {', '.join(names)}"


def _word(value: Fact) -> str:
    return ABSENT if value is None else str(value)
