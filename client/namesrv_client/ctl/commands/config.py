"""`kv` and `config`: the key-value configuration, and the settings of running servers."""

from typing import Annotated

import typer

from namesrv_client.ctl.options import Options
from namesrv_client.ctl.running import change, show_list
from namesrv_remoting.bodies.properties import format_properties
from namesrv_remoting.codes import RequestCode

Namespace = Annotated[str, typer.Argument(help="Namespace, such as ORDER_TOPIC_CONFIG.", show_default=False)]
Key = Annotated[str, typer.Argument(help="Key in the namespace.", show_default=False)]
Value = Annotated[str, typer.Argument(help="New value.", show_default=False)]


def kv_get(options: Options, namespace: Namespace, key: Key) -> None:
    """Show one value. Exits with 1 if a server that answered has none."""
    show_list(
        options,
        lambda server: server.kv_get(namespace, key),
        "value",
        {"value": lambda value: value},
        lambda value: [] if value is None else [value],
        absent=lambda value: [f"{key} in {namespace}"] if value is None else [],
    )


def kv_put(options: Options, namespace: Namespace, key: Key, value: Value) -> None:
    """Set a value on every server. Exits with 1 if one of them did not accept it."""
    told = {"namespace": namespace, "key": key, "value": value}
    change(options, lambda server: server.ask(RequestCode.PUT_KV_CONFIG, told), told)


def kv_delete(options: Options, namespace: Namespace, key: Key) -> None:
    """Remove a value from every server; it may be absent. Exits with 1 if one of them refused."""
    told = {"namespace": namespace, "key": key}
    change(
        options,
        lambda server: server.ask(RequestCode.DELETE_KV_CONFIG, told),
        told,
        confirming=f"delete {key} from {namespace}",
    )


def kv_list(options: Options, namespace: Namespace) -> None:
    """Show a whole namespace. Exits with 1 if a server that answered has none of that name."""
    show_list(
        options,
        lambda server: server.kv_list(namespace),
        "values",
        {"key": lambda it: it[0], "value": lambda it: it[1]},
        lambda found: sorted((found or {}).items()),
        absent=lambda found: [f"namespace {namespace}"] if found is None else [],
    )


def show_config(
    options: Options,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Settings to show; default: all.", show_default=False)
    ] = None,
) -> None:
    """Show the settings in effect, by their names in Apache's namesrv.properties.

    Exits with 1 if a server that answered lacks one of the given keys.
    """

    def chosen(found: dict[str, str]) -> dict[str, str]:
        return {key: value for key, value in sorted(found.items()) if not keys or key in keys}

    show_list(
        options,
        lambda server: server.config(),
        "config",
        {"key": lambda it: it[0], "value": lambda it: it[1]},
        lambda found: chosen(found).items(),
        document=chosen,
        absent=lambda found: [f"setting {key}" for key in keys or () if key not in found],
    )


def set_config(
    options: Options,
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="New values.", show_default=False)],
) -> None:
    """Change settings of running servers; ours require --admin-enabled.

    Exits with 1 if one of them did not accept the change.
    """
    settings = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise typer.BadParameter(f"not of the form KEY=VALUE: {text!r}", param_hint="KEY=VALUE")
        settings[key.strip()] = value
    changes = ", ".join(f"{key} to {value}" for key, value in settings.items())
    change(
        options,
        lambda server: server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=format_properties(settings).encode()),
        {"config": settings},
        confirming=f"set {changes}",
    )
