"""`kv`: what is in the key-value configuration, order configuration included?"""

from typing import Annotated

import typer

from namesrv_client.ctl.listing import done, listing, nos_of
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import change, confirm, on, show
from namesrv_client.ctl.servers import Servers

Namespace = Annotated[str, typer.Argument(help="Such as ORDER_TOPIC_CONFIG.", show_default=False)]
Key = Annotated[str, typer.Argument(help="A name in it.", show_default=False)]
Value = Annotated[str, typer.Argument(help="Its new value.", show_default=False)]


def get(options: Options, namespace: Namespace, key: Key) -> None:
    """One value. Ends with 1 when a server that answered has none."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_get(namespace, key))
        return listing(
            answers,
            "value",
            document=lambda value: value,
            columns=("value",),
            rows=lambda value: [] if value is None else [(value,)],
            nos=nos_of(answers, lambda value: (f"{key} in {namespace}",) if value is None else ()),
        )

    show(options, ask)


def put(options: Options, namespace: Namespace, key: Key, value: Value) -> None:
    """Set a value on every server. Ends with 1 when one of them did not take it."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_put(namespace, key, value))
        return done(answers, {"namespace": namespace, "key": key, "value": value})

    change(options, ask)


def delete(options: Options, namespace: Namespace, key: Key) -> None:
    """Remove a value from every server; it may be absent. Ends with 1 when one of them did not do it."""
    confirm(options, f"delete {key} from {namespace} {on(options)}")

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_delete(namespace, key))
        return done(answers, {"namespace": namespace, "key": key})

    change(options, ask)


def show_all(options: Options, namespace: Namespace) -> None:
    """A whole namespace. Ends with 1 when a server that answered has no such."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_list(namespace))
        return listing(
            answers,
            "values",
            document=lambda found: found,
            columns=("key", "value"),
            rows=lambda found: sorted((found or {}).items()),
            nos=nos_of(answers, lambda found: (f"namespace {namespace}",) if found is None else ()),
        )

    show(options, ask)
