"""`kv` and `config`: the key-value configuration, and the settings of running servers."""

from typing import Annotated

import typer

from namesrv_client.ctl.listing import absences_in, done, listing
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import change, confirm, on, show
from namesrv_client.ctl.servers import Servers

Namespace = Annotated[str, typer.Argument(help="Namespace, such as ORDER_TOPIC_CONFIG.", show_default=False)]
Key = Annotated[str, typer.Argument(help="Key in the namespace.", show_default=False)]
Value = Annotated[str, typer.Argument(help="New value.", show_default=False)]


def kv_get(options: Options, namespace: Namespace, key: Key) -> None:
    """Show one value. Exits with 1 if a server that answered has none."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_get(namespace, key))
        return listing(
            answers,
            "value",
            document=lambda value: value,
            columns=("value",),
            rows=lambda value: [] if value is None else [(value,)],
            absences=absences_in(answers, lambda value: (f"{key} in {namespace}",) if value is None else ()),
        )

    show(options, ask)


def kv_put(options: Options, namespace: Namespace, key: Key, value: Value) -> None:
    """Set a value on every server. Exits with 1 if one of them did not accept it."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_put(namespace, key, value))
        return done(answers, {"namespace": namespace, "key": key, "value": value})

    change(options, ask)


def kv_delete(options: Options, namespace: Namespace, key: Key) -> None:
    """Remove a value from every server; it may be absent. Exits with 1 if one of them refused."""
    confirm(options, f"delete {key} from {namespace} {on(options)}")

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_delete(namespace, key))
        return done(answers, {"namespace": namespace, "key": key})

    change(options, ask)


def kv_list(options: Options, namespace: Namespace) -> None:
    """Show a whole namespace. Exits with 1 if a server that answered has none of that name."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.kv_list(namespace))
        return listing(
            answers,
            "values",
            document=lambda found: found,
            columns=("key", "value"),
            rows=lambda found: sorted((found or {}).items()),
            absences=absences_in(answers, lambda found: (f"namespace {namespace}",) if found is None else ()),
        )

    show(options, ask)


Keys = Annotated[
    list[str] | None, typer.Argument(metavar="KEY", help="Settings to show; default: all.", show_default=False)
]
Assignments = Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="New values.", show_default=False)]


def show_config(options: Options, keys: Keys = None) -> None:
    """Show the settings in effect, by their names in Apache's namesrv.properties.

    Exits with 1 if a server that answered lacks one of the given keys.
    """

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.config())
        return listing(
            answers,
            "config",
            document=lambda found: _chosen(found, keys),
            columns=("key", "value"),
            rows=lambda found: _chosen(found, keys).items(),
            absences=absences_in(answers, lambda found: [f"setting {key}" for key in keys or () if key not in found]),
        )

    show(options, ask)


def _chosen(found: dict[str, str], keys: list[str] | None) -> dict[str, str]:
    return {key: value for key, value in sorted(found.items()) if not keys or key in keys}


def set_config(options: Options, assignments: Assignments) -> None:
    """Change settings of running servers; ours require --admin-enabled.

    Exits with 1 if one of them did not accept the change.
    """
    settings = dict(_assignment(text) for text in assignments)
    change_settings(options, settings)


def change_settings(options: Options, settings: dict[str, str]) -> None:
    """The same, read already."""
    changes = ", ".join(f"{key} to {value}" for key, value in settings.items())
    confirm(options, f"set {changes} {on(options)}")

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.set_config(settings))
        return done(answers, {"config": settings})

    change(options, ask)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise typer.BadParameter(f"not of the form KEY=VALUE: {text!r}", param_hint="KEY=VALUE")
    return key.strip(), value
