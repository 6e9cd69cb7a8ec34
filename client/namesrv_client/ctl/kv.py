"""`kv`: what is in the key-value configuration, order configuration included?"""

from typing import Annotated

import typer

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.listing import listing
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import change, confirm, on, show
from namesrv_client.ctl.servers import Servers
from namesrv_client.ctl.changes import done

Namespace = Annotated[str, typer.Argument(help="Such as ORDER_TOPIC_CONFIG.", show_default=False)]
Key = Annotated[str, typer.Argument(help="A name in it.", show_default=False)]
Value = Annotated[str, typer.Argument(help="Its new value.", show_default=False)]


def get(options: Options, namespace: Namespace, key: Key) -> None:
    """One value. Ends with 1 when a server that answered has none."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_get(namespace, key))
        report = listing(
            answers,
            "value",
            document=lambda value: value,
            columns=("value",),
            rows=lambda value: [] if value is None else [(value,)],
        )
        absent = [f"{server}: no {key} in {namespace}" for server, value in answers.given.items() if value is None]
        code = max(report.code, exit_codes.NO if absent else exit_codes.OK)
        return Report(report.document, report.body, code, [*answers.problems(), *absent])

    show(options, ask)


def put(options: Options, namespace: Namespace, key: Key, value: Value) -> None:
    """Set a value on every server. Ends with 1 when one of them did not take it."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_put(namespace, key, value))
        return done(answers, {"namespace": namespace, "key": key, "value": value}, lambda _: {})

    change(options, ask)


def delete(options: Options, namespace: Namespace, key: Key) -> None:
    """Remove a value from every server; it may be absent. Ends with 1 when one of them did not do it."""
    confirm(options, f"delete {key} from {namespace} {on(options)}")

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_delete(namespace, key))
        return done(answers, {"namespace": namespace, "key": key}, lambda _: {})

    change(options, ask)


def show_all(options: Options, namespace: Namespace) -> None:
    """A whole namespace. Ends with 1 when a server that answered has no such."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_list(namespace))
        report = listing(
            answers,
            "values",
            document=lambda found: found,
            columns=("key", "value"),
            rows=lambda found: sorted((found or {}).items()),
        )
        absent = [f"{server}: no namespace {namespace}" for server, found in answers.given.items() if found is None]
        code = max(report.code, exit_codes.NO if absent else exit_codes.OK)
        return Report(report.document, report.body, code, [*answers.problems(), *absent])

    show(options, ask)
