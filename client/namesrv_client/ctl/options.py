"""The options that every command has: which servers, how to print, how often.

typer knows options of a command only; `command` and `group` add the common ones to each, so that
`namesrvctl -s ns1:9876 brokers` and `namesrvctl brokers -s ns1:9876` are the same.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal

import typer

from namesrv_client.ctl import PROGRAM
from namesrv_runtime.name_servers import parse_list

OutputFormat = Literal["table", "json", "yaml"]

DEFAULT_PORT: Final = 9876
DEFAULT_ADDRESS: Final = f"127.0.0.1:{DEFAULT_PORT}"
DEFAULT_TIMEOUT_SECONDS: Final = 3.0
_PANEL: Final = "Options of every command"
_UNITS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
# a repaint takes longer than less
_MIN_WATCH_SECONDS: Final = 0.1
_MAX_SECONDS: Final = 86_400.0

Server = Annotated[
    list[str] | None,
    typer.Option(
        "--server",
        "-s",
        metavar="HOST[:PORT]",
        help="NameServer to ask; the port defaults to 9876. Repeat the option or separate several with ',' or ';'. "
        "Default: NAMESRV_ADDR, else 127.0.0.1:9876.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
MqadminServer = Annotated[
    list[str] | None,
    typer.Option(
        "--namesrvAddr",
        "-n",
        "--server",
        metavar="HOST[:PORT];...",
        help="NameServers, as for mqadmin.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Output = Annotated[
    OutputFormat | None,
    typer.Option("--output", "-o", help="Output format; default: table.", show_default=False, rich_help_panel=_PANEL),
]
Watch = Annotated[
    str | None,
    typer.Option(
        "--watch",
        metavar="TIME",
        help="Repeat at this interval (2s, 500ms) until Ctrl-C, which exits with 0.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Timeout = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        help="How long to wait for each answer (500ms, 10s); default: 3s.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="Plain text; the same as setting NO_COLOR.", rich_help_panel=_PANEL)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.", rich_help_panel=_PANEL)]


def _print_version(is_wanted: bool) -> None:  # noqa: FBT001 - how typer calls it
    if is_wanted:
        typer.echo(f"{PROGRAM} {version('namesrv')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]

# name -> annotation, default
_COMMON: Final[Mapping[str, tuple[Any, Any]]] = {
    "server": (Server, None),
    "output": (Output, None),
    "watch": (Watch, None),
    "timeout": (Timeout, None),
    "no_color": (NoColor, False),
    "yes": (Yes, False),
}


@dataclass(frozen=True, slots=True)
class Given:
    """The common options as they stand on the command line, at one of the two places."""

    server: tuple[str, ...] = ()
    output: OutputFormat | None = None
    watch: str | None = None
    timeout: str | None = None
    no_color: bool = False
    yes: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """The common options with their defaults, checked."""

    addresses: tuple[str, ...] = (DEFAULT_ADDRESS,)
    output: OutputFormat = "table"
    # None: once
    watch_seconds: float | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    color: bool = True
    yes: bool = False


def resolve(before: Given, after: Given, environ: Mapping[str, str] = os.environ) -> Options:
    """What is said before and after the command, together; what is said after it wins. Raises BadParameter."""
    servers = (*before.server, *after.server)
    watch = after.watch or before.watch
    timeout = after.timeout or before.timeout
    return Options(
        addresses=_addresses(servers, environ),
        output=after.output or before.output or "table",
        watch_seconds=None if watch is None else duration(watch, "--watch", at_least=_MIN_WATCH_SECONDS),
        timeout_seconds=DEFAULT_TIMEOUT_SECONDS if timeout is None else duration(timeout, "--timeout"),
        color=not (before.no_color or after.no_color),
        yes=before.yes or after.yes,
    )


def _addresses(servers: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    if servers:
        where, text = "--server", ";".join(servers)
    elif environ.get("NAMESRV_ADDR"):
        where, text = "NAMESRV_ADDR", environ["NAMESRV_ADDR"]
    else:
        return (DEFAULT_ADDRESS,)
    try:
        return parse_list(_with_ports(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=where) from error


def _with_ports(text: str) -> str:
    """The list with the usual port where none is given: behind a name, an IPv4 address or a bracketed IPv6 one."""
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    return ";".join(
        f"{part}:{DEFAULT_PORT}" if part and (part.endswith("]") or ":" not in part) else part for part in parts
    )


def duration(text: str, option: str, *, at_least: float = 0.001) -> float:
    """The seconds of `2s`, `500ms`, `1m` or `2`. Raises BadParameter."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(ms|s|m|h|)", text.strip(), re.ASCII)
    if found is None:
        raise typer.BadParameter(f"not a valid duration: {text!r} (for example 500ms, 2s, 1m)", param_hint=option)
    seconds = float(found[1]) * _UNITS[found[2]]
    if not at_least <= seconds <= _MAX_SECONDS:
        raise typer.BadParameter(f"{text!r} is outside {at_least:g} s to {_MAX_SECONDS:g} s", param_hint=option)
    return seconds


def group(app: typer.Typer) -> Callable[[Callable[[], None]], None]:
    """Register what `app` itself says in its help, with the common options before the command."""

    def register(function: Callable[[], None]) -> None:
        def callback(ctx: typer.Context, **common: Any) -> None:
            del common["version"]
            ctx.obj = _given(common)

        app.callback()(_with_signature(callback, function, {}, {"version": (Version, False), **_COMMON}))

    return register


def command(
    app: typer.Typer, name: str, *, is_mqadmins: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose first parameter is the `Options`; those of mqadmin's are hidden and take -n, not -s."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = dict(list(inspect.signature(function).parameters.items())[1:])
        common = {**_COMMON, "server": (MqadminServer, None)} if is_mqadmins else _COMMON

        def run(ctx: typer.Context, **values: Any) -> None:
            _check_text(values)
            after = _given({key: values.pop(key) for key in _COMMON})
            function(resolve(ctx.obj or Given(), after), **values)

        app.command(name, hidden=is_mqadmins)(_with_signature(run, function, own, common))
        return function

    return register


def _check_text(values: Mapping[str, Any]) -> None:
    """Refuse bytes that are no text; no server could be sent them. Raises BadParameter."""
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise typer.BadParameter(f"{text!a} is not valid UTF-8", param_hint=name.upper())


def _given(values: Mapping[str, Any]) -> Given:
    return Given(**{**values, "server": tuple(values["server"] or ())})


def _with_signature(
    function: Callable[..., None],
    of: Callable[..., None],
    own: Mapping[str, inspect.Parameter],
    common: Mapping[str, tuple[Any, Any]],
) -> Callable[..., None]:
    """The function as typer shall see it: the other's name, text and parameters, and the common options."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
    parameters += [parameter.replace(kind=keyword) for parameter in own.values()]
    parameters += [
        inspect.Parameter(name, keyword, annotation=annotation, default=default)
        for name, (annotation, default) in common.items()
    ]
    function.__name__ = of.__name__
    # typer keeps the line breaks of all paragraphs but the first
    paragraphs = (of.__doc__ or "").split("\n\n")
    function.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks for
    return function
