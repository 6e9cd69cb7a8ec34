"""`kv` and `config`: the key-value configuration, and the settings of running servers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import typer
from rich.console import RenderableType

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, counted, table
from namesrv_client.ctl.running import absences_in, change, show, show_list
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.bodies.extensions import Setting
from namesrv_remoting.bodies.properties import format_properties
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import BadRequestError
from namesrv_runtime.suggestions import did_you_mean

# The origin of a setting that no file, variable, flag or request has set.
_DEFAULT: Final = "default"
_CHANGES: Final = {
    "reload": "change the server's configuration, and send it SIGHUP",
    "restart": "change the server's configuration, and restart it",
}

Namespace = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="Namespace, such as ORDER_TOPIC_CONFIG.", show_default=False)
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Key in the namespace.", show_default=False)]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="New value.", show_default=False)]


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
    fields = {"namespace": namespace, "key": key, "value": value}
    change(options, lambda server: server.ask(RequestCode.PUT_KV_CONFIG, fields), fields)


def kv_delete(options: Options, namespace: Namespace, key: Key) -> None:
    """Remove a value from every server; it may be absent. Exits with 1 if one of them refused."""
    fields = {"namespace": namespace, "key": key}
    change(
        options,
        lambda server: server.ask(RequestCode.DELETE_KV_CONFIG, fields),
        fields,
        confirming=f"delete {key} from {namespace}",
    )


def kv_list(options: Options, namespace: Namespace) -> None:
    """Show a whole namespace. Exits with 1 if a server that answered has none of that name."""
    show_list(
        options,
        lambda server: server.kv_list(namespace),
        "values",
        {"key": lambda it: it[0], "value": lambda it: it[1]},
        lambda entries: sorted((entries or {}).items()),
        absent=lambda entries: [f"namespace {namespace}"] if entries is None else [],
    )


def show_config(
    options: Options,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Settings to show.", show_default=False)
    ] = None,
    *,
    shows_all: Annotated[
        bool, typer.Option("--all", "-a", help="Also settings that have their default on every server.")
    ] = False,
) -> None:
    """Show the settings in effect, by their names in Apache's namesrv.properties.

    KEY may also be our name of a setting. Without KEY: those that differ from their default, or between servers.
    Apache's NameServer does not say what is a default: all of its settings are shown. JSON and YAML have all settings.
    Exits with 1 if a server that answered lacks one of the given keys.
    """

    async def ask(servers: Servers) -> Report:
        responses = await servers.ask(_settings)
        absences = absences_in(responses, lambda settings: _absent(settings, keys or ()))
        given_keys = {_key_of(settings, key) for settings in responses.given.values() for key in keys or ()}
        every = sorted(frozenset().union(*responses.given.values()))
        names = [name for name in every if not keys or name in given_keys]
        shown = [name for name in names if keys or shows_all or _is_remarkable(name, responses.given)]
        left_out = len(names) - len(shown) if options.output == "table" else 0
        remarks = [f"{counted(left_out, 'setting')} with default values left out; use --all"] if left_out else []
        if responses.given and not every and not keys:
            remarks = ["no settings reported"]
        documents = responses.documents(
            lambda settings: {"config": {name: settings[name].value for name in names if name in settings}}
        )
        return Report(
            {"servers": documents},
            _setting_table(shown, responses.given),
            max(responses.code(), ExitCode.NO if absences else ExitCode.OK),
            [*responses.failures(), *absences, *remarks],
        )

    show(options, ask)


async def _settings(server: NameServer) -> dict[str, Setting]:
    return {setting.key: setting for setting in await server.settings()}


def _key_of(settings: Mapping[str, Setting], text: str) -> str:
    """The key in Apache's namesrv.properties of a setting that is given by this key, or by our name of the setting."""
    name = text.replace("_", "-")
    return next((key for key, setting in settings.items() if setting.name.replace("_", "-") == name), text)


def _absent(settings: Mapping[str, Setting], keys: Iterable[str]) -> list[str]:
    """The given settings that a server does not have, each with a similar name."""
    return [f"setting {key}{_hint(settings, key)}" for key in keys if _key_of(settings, key) not in settings]


def _hint(settings: Mapping[str, Setting], key: str) -> str:
    return did_you_mean(key, [*settings, *(setting.name for setting in settings.values())])


def _is_remarkable(name: str, by_server: Mapping[str, Mapping[str, Setting]]) -> bool:
    """True if a setting differs between the servers, or differs from its default on one of them."""
    per_server = [settings.get(name) for settings in by_server.values()]
    values = {setting and setting.value for setting in per_server}
    return len(values) > 1 or any(setting is not None and setting.origin != _DEFAULT for setting in per_server)


def _setting_table(names: Sequence[str], by_server: Mapping[str, Mapping[str, Setting]]) -> list[RenderableType]:
    """A row for each setting: with its origin, or with a column for each of several servers."""
    if len(by_server) == 1:
        (settings,) = by_server.values()
        return table(("key", "value", "from"), [(name, settings[name].value, settings[name].origin) for name in names])
    rows = [
        (name, *(setting and setting.value for setting in (settings.get(name) for settings in by_server.values())))
        for name in names
    ]
    return table(("key", *by_server), rows)


def set_config(
    options: Options,
    assignments: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="New values.", show_default=False)],
) -> None:
    """Change settings of running servers; ours require --admin-enabled or an access file.

    A setting has its name in Apache's namesrv.properties, or ours. Settings that no request can change are refused,
    with the names of those that can be changed.

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
        lambda server: _set(server, settings),
        {"config": settings},
        confirming=f"set {changes}",
        objections=lambda server: _unchangeable(server, settings),
    )


async def _set(server: NameServer, wanted: Mapping[str, str]) -> None:
    """Change settings, each given by its key in Apache's namesrv.properties, or by our name of it.

    The settings are judged again, since our server ignores unknown ones: it may not have answered before the change
    was confirmed, or have been replaced since.

    Raises:
        BadRequestError: the server would ignore a setting.
    """
    known = await _settings(server) if await server.is_native() else None
    if known is not None and (reasons := _unchangeable_among(known, wanted)):
        raise BadRequestError("; ".join(reasons))
    values = {_key_of(known or {}, key): value for key, value in wanted.items()}
    await server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=format_properties(values).encode())


async def _unchangeable(server: NameServer, wanted: Iterable[str]) -> list[str]:
    """Reasons why a server would ignore these settings; none for Apache's server, which does not report them."""
    if not await server.is_native():
        return []
    return _unchangeable_among(await _settings(server), wanted)


def _unchangeable_among(known: Mapping[str, Setting], wanted: Iterable[str]) -> list[str]:
    reasons = []
    changeable = sorted(key for key, setting in known.items() if setting.changed_by == "request")
    for text in wanted:
        setting = known.get(_key_of(known, text))
        if setting is None:
            reasons.append(f"no setting {text}{_hint(known, text)}")
        elif setting.changed_by not in (None, "request"):
            reasons.append(f"setting {text} cannot be changed by a request: {_CHANGES[str(setting.changed_by)]}")
    if reasons and changeable:
        reasons.append(f"a request can change {', '.join(changeable)}")
    return reasons
