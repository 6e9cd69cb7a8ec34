"""`wipe-write-perm`, `add-write-perm`, `delete-topic`: what can be changed on every server at once?"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, table
from namesrv_client.ctl.running import change, confirm, on
from namesrv_client.ctl.servers import Answers, Servers
from namesrv_remoting.errors import ResponseError

T = TypeVar("T")

BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Name of a broker group.", show_default=False)]


def done(answers: Answers[T], what: Mapping[str, Any], members: Callable[[T], Mapping[str, Any]]) -> Report:
    """What a change came to on each server. One that was not reached is not changed, and that is a no."""
    rows = [
        (server, *(_word(value) for value in {"result": "done", **members(found)}.values()))
        for server, found in answers.given.items()
    ]
    heads = next((tuple({"result": "", **members(found)}) for found in answers.given.values()), ())
    return Report(
        {**what, "servers": answers.documents(members)},
        table(("server", *heads), rows),
        answers.code(needs_all=True),
        answers.problems(),
    )


def _word(value: object) -> object:
    return value


def wipe_write_perm(options: Options, broker: BrokerName) -> None:
    """Take the write permission from all topics of a broker, so that producers leave it.

    Ends with 1 when a server does not know the broker or was not reached.
    """
    confirm(options, f"wipe the write permission of broker {broker} {on(options)}")
    change(options, lambda servers: _change_perm(servers, broker, lambda server: server.wipe_write_perm(broker)))


def add_write_perm(options: Options, broker: BrokerName) -> None:
    """Make all topics of a broker readable and writable, those that were read-only before included.

    Ends with 1 when a server does not know the broker or was not reached.
    """
    confirm(options, f"make all topics of broker {broker} readable and writable {on(options)}")
    change(options, lambda servers: _change_perm(servers, broker, lambda server: server.add_write_perm(broker)))


async def _change_perm(servers: Servers, broker: str, ask: Any) -> Report:
    answers: Answers[int] = await servers.ask(ask)
    report = done(answers, {"broker": broker}, lambda count: {"topics": count})
    unknown = [f"{server}: no topics of broker {broker}" for server, count in answers.given.items() if not count]
    code = max(report.code, exit_codes.NO if unknown else exit_codes.OK)
    return Report(report.document, report.body, code, [*report.problems, *unknown])


def delete_topic(
    options: Options,
    topic: Annotated[str, typer.Argument(help="Name of a topic.", show_default=False)],
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Only from this cluster's brokers.", show_default=False)
    ] = None,
) -> None:
    """Make every server forget a topic. Brokers that still have it register it again within 30 s.

    Ends with 1 when no server that answered had it, or one was not reached.
    """
    where = "" if cluster is None else f" of cluster {cluster}"
    confirm(options, f"delete topic {topic}{where} {on(options)}")

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: _delete(server, topic, cluster))
        report = done(answers, {"topic": topic, "cluster": cluster}, lambda existed: {"existed": existed})
        problems = [*report.problems]
        code = report.code
        if answers.given and not any(existed is not False for existed in answers.given.values()):
            problems.append(f"no topic {topic}")
            code = max(code, exit_codes.NO)
        return Report(report.document, report.body, code, problems)

    change(options, ask)


async def _delete(server: NameServer, topic: str, cluster: str | None) -> bool | None:
    """Delete it; whether it was there, None if that cannot be told."""
    try:
        existed = (await server.routes([topic]))[topic] is not None
    except ResponseError:
        # a server that is not ready yet tells no routes, and deletes all the same
        existed = None
    await server.delete_topic(topic, cluster)
    return existed
