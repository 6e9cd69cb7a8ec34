"""`wipe-write-perm`, `add-write-perm`, `delete-topic`: changes on every server at once."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from namesrv_client.ctl.listing import absences_in, done
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import change, confirm, on
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.errors import ResponseError

BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Name of a broker group.", show_default=False)]


def wipe_write_perm(options: Options, broker: BrokerName) -> None:
    """Remove the write permission from all topics of a broker, so that producers leave it.

    Exits with 1 if a server does not know the broker or was not reached.
    """
    confirm(options, f"wipe the write permission of broker {broker} {on(options)}")
    change(options, lambda servers: _change_perm(servers, broker, lambda server: server.wipe_write_perm(broker)))


def add_write_perm(options: Options, broker: BrokerName) -> None:
    """Make all topics of a broker readable and writable, also those that were read-only before.

    Exits with 1 if a server does not know the broker or was not reached.
    """
    confirm(options, f"make all topics of broker {broker} readable and writable {on(options)}")
    change(options, lambda servers: _change_perm(servers, broker, lambda server: server.add_write_perm(broker)))


async def _change_perm(servers: Servers, broker: str, ask: Callable[[NameServer], Awaitable[int]]) -> Report:
    answers = await servers.ask(ask)
    unknown = absences_in(answers, lambda count: () if count else (f"topics of broker {broker}",))
    return done(answers, {"broker": broker}, members=lambda count: {"topics": count}, absences=unknown)


def delete_topic(
    options: Options,
    topic: Annotated[str, typer.Argument(help="Name of a topic.", show_default=False)],
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Only from this cluster's brokers.", show_default=False)
    ] = None,
) -> None:
    """Delete a topic from every server. Brokers that still have it register it again within 30 s.

    Exits with 1 if no server that answered had it, or one was not reached.
    """
    where = "" if cluster is None else f" of cluster {cluster}"
    confirm(options, f"delete topic {topic}{where} {on(options)}")

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: _delete(server, topic, cluster))
        was_nowhere = bool(answers.given) and all(existed is False for existed in answers.given.values())
        return done(
            answers,
            {"topic": topic, "cluster": cluster},
            members=lambda existed: {"existed": existed},
            absences=[f"no topic {topic}"] if was_nowhere else [],
        )

    change(options, ask)


async def _delete(server: NameServer, topic: str, cluster: str | None) -> bool | None:
    """Delete it; whether it was there, None if that cannot be told."""
    existed: bool | None
    try:
        # not its route: a server that is not ready refuses that, and closes the connection
        existed = topic in await server.topics()
    except ResponseError:
        # the list can be switched off
        existed = None
    await server.delete_topic(topic, cluster)
    return existed
