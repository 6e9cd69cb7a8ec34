"""The options that every command has: which servers, how to print, how often.

typer knows options of a command only; `command` and `group` add the common ones to each, so that
`namesrvctl -s ns1:9876 brokers` and `namesrvctl brokers -s ns1:9876` are the same.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer
from typer.core import TyperCommand

from namesrv_client.ctl import PROGRAM
from namesrv_runtime.program import version

if TYPE_CHECKING:
    # imported where they are used: what needs no server, help above all, does without pydantic and asyncio
    from namesrv_client.ctl.contexts import Context
    from namesrv_remoting.aio.credentials import SigningSettings
    from namesrv_remoting.aio.tls import TlsClientSettings
    from namesrv_runtime.settings import CheckedSettings

S = TypeVar("S", bound="CheckedSettings")
OutputFormat = Literal["table", "json", "yaml"]

DEFAULT_PORT: Final = 9876
_UNITS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
# a repaint takes longer than less
_MIN_WATCH_SECONDS: Final = 0.1
_MAX_SECONDS: Final = 86_400.0


_PANEL: Final = "Options of every command"
_ALSO: Final = (
    "Every command also takes --server, --context, --output, --watch, --timeout, --no-color, --yes and --tls...: "
    f"see {PROGRAM} --help."
)


def _option(*names: str, **values: Any) -> Any:
    return typer.Option(*names, show_default=False, rich_help_panel=_PANEL, **values)


def _print_version(is_wanted: bool) -> None:  # noqa: FBT001 - how typer calls it
    if is_wanted:
        typer.echo(f"{PROGRAM} {version()}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]
_MqadminServer = Annotated[
    list[str] | None,
    typer.Option(
        *("--namesrvAddr", "-n", "--server"),
        metavar="HOST[:PORT];...",
        show_default=False,
        help="NameServers, as for mqadmin.",
    ),
]


def context_names(incomplete: str) -> list[str]:
    """For a shell: saved contexts that begin like this."""
    from namesrv_client.ctl.contexts import ContextError, read_contexts  # noqa: PLC0415  # see above

    try:
        return sorted(name for name in read_contexts().by_name if name.startswith(incomplete))
    except ContextError:
        return []


@dataclass(frozen=True, slots=True)
class Options:
    """The common options, checked."""

    addresses: tuple[str, ...]
    output: OutputFormat
    # None: once
    watch_seconds: float | None
    timeout_seconds: float
    color: bool
    yes: bool
    # the settings of both that options or context say; the environment says the rest, and secrets it alone says: the
    # arguments of a process can be read by everybody
    signing_given: Mapping[str, object] = field(default_factory=dict)
    tls_given: Mapping[str, object] = field(default_factory=dict)

    @property
    def signing(self) -> "SigningSettings":
        """How requests are signed. Raises BadParameter."""
        from namesrv_remoting.aio.credentials import SigningSettings  # noqa: PLC0415  # see above

        return _checked(SigningSettings, self.signing_given)

    @property
    def tls(self) -> "TlsClientSettings":
        """How connections are encrypted. Raises BadParameter."""
        from namesrv_remoting.aio.tls import TlsClientSettings  # noqa: PLC0415  # see above

        return _checked(TlsClientSettings, self.tls_given)


def options_of(  # noqa: PLR0913 - each is an option
    *,
    server: Annotated[
        list[str] | None,
        _option(
            "--server",
            "-s",
            metavar="HOST[:PORT]",
            help="NameServer to ask; the port defaults to 9876. Repeat the option or separate several with ',' or ';'. "
            "Default: NAMESRV_ADDR, else 127.0.0.1:9876.",
        ),
    ] = None,
    context: Annotated[
        str | None,
        _option(
            "--context",
            metavar="NAME",
            help="Saved servers and how to connect to them (see: context add). Default: the one in use, if neither "
            "--server nor NAMESRV_ADDR names servers.",
            autocompletion=context_names,
        ),
    ] = None,
    output: Annotated[OutputFormat | None, _option("--output", "-o", help="Output format; default: table.")] = None,
    watch: Annotated[
        str | None,
        _option(
            "--watch", metavar="TIME", help="Repeat at this interval (2s, 500ms) until Ctrl-C, which exits with 0."
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        _option("--timeout", metavar="TIME", help="How long to wait for each answer (500ms, 10s); default: 3s."),
    ] = None,
    no_color: Annotated[bool, _option("--no-color", help="Plain text; the same as setting NO_COLOR.")] = False,
    yes: Annotated[bool, _option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    tls: Annotated[bool, _option("--tls", help="Connect over TLS; or NAMESRV_TLS=true.")] = False,
    tls_ca_file: Annotated[
        Path | None,
        _option(
            "--tls-ca-file",
            metavar="FILE",
            help="CAs of the servers' certificates (PEM); or NAMESRV_TLS_CA_FILE. Default: the system's.",
        ),
    ] = None,
    tls_crl_file: Annotated[
        Path | None,
        _option(
            "--tls-crl-file",
            metavar="FILE",
            help="Revocation lists of these CAs (PEM), one of each; or NAMESRV_TLS_CRL_FILE.",
        ),
    ] = None,
    tls_cert_file: Annotated[
        Path | None,
        _option("--tls-cert-file", metavar="FILE", help="Own certificate (PEM); or NAMESRV_TLS_CERT_FILE."),
    ] = None,
    tls_key_file: Annotated[
        Path | None,
        _option(
            "--tls-key-file",
            metavar="FILE",
            help="Its private key (PEM), if that is in a file of its own; or NAMESRV_TLS_KEY_FILE. A passphrase comes "
            "from NAMESRV_TLS_KEY_PASSWORD only.",
        ),
    ] = None,
    no_tls_verify_host: Annotated[
        bool,
        _option(
            "--no-tls-verify-host",
            help="Take any certificate of these CAs, for whichever host; or NAMESRV_TLS_VERIFY_HOST=false.",
        ),
    ] = False,
) -> Options:
    """The options as they stand on the command line, with their defaults. Raises BadParameter."""
    saved = _saved(context, is_named=bool(server or os.environ.get("NAMESRV_ADDR")))
    tls_given = {
        "tls": tls or None,
        "tls_ca_file": tls_ca_file,
        "tls_crl_file": tls_crl_file,
        "tls_cert_file": tls_cert_file,
        "tls_key_file": tls_key_file,
        "tls_verify_host": False if no_tls_verify_host else None,
    }
    return Options(
        addresses=(
            addresses_of(named, "--server")
            if (named := server or (saved and saved.servers))
            else addresses_of([os.environ.get("NAMESRV_ADDR") or "127.0.0.1"], "NAMESRV_ADDR")
        ),
        output=output or "table",
        watch_seconds=None if watch is None else duration(watch, "--watch", at_least=_MIN_WATCH_SECONDS),
        timeout_seconds=duration(timeout or "3s", "--timeout"),
        color=not no_color,
        yes=yes,
        signing_given={} if saved is None else saved.signing(),
        tls_given=_set(tls_given) if saved is None else saved.tls_settings() | _set(tls_given),
    )


def _set(given: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in given.items() if value is not None}


def _saved(name: str | None, *, is_named: bool) -> "Context | None":
    """The context of that name; without one that in use, unless servers are named otherwise. Raises BadParameter."""
    if name is None and is_named:
        return None
    from namesrv_client.ctl.contexts import ContextError, read_contexts  # noqa: PLC0415  # see above

    try:
        contexts = read_contexts()
        chosen = name or contexts.current
        return None if chosen is None else contexts.named(chosen)
    except ContextError as error:
        raise typer.BadParameter(str(error), param_hint="--context") from None


def _checked(kind: type[S], given: Mapping[str, object]) -> S:
    """Settings of which the rest comes from the environment."""
    try:
        return kind(**given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="options or environment") from None


_COMMON: Final = inspect.signature(options_of).parameters


def addresses_of(servers: Sequence[str], where: str) -> tuple[str, ...]:
    """The servers that an option or variable names, each with its port. Raises BadParameter."""
    from namesrv_runtime.name_servers import parse_list  # noqa: PLC0415  # see above

    parts = [part.strip() for part in ";".join(servers).replace(",", ";").split(";")]
    # the usual port behind a name, an IPv4 address and a bracketed IPv6 one
    parts = [f"{it}:{DEFAULT_PORT}" if it and (it.endswith("]") or ":" not in it) else it for it in parts]
    try:
        return parse_list(";".join(parts))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=where) from error


def duration(text: str, option: str, *, at_least: float = 0.001) -> float:
    """The seconds of `2s`, `500ms`, `1m` or `2`. Raises BadParameter."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(ms|s|m|h|)", text.strip(), re.ASCII)
    if found is None:
        raise typer.BadParameter(f"not a valid duration: {text!r} (for example 500ms, 2s, 1m)", param_hint=option)
    seconds = float(found[1]) * _UNITS[found[2]]
    if not at_least <= seconds <= _MAX_SECONDS:
        raise typer.BadParameter(f"{text!r} is outside {at_least:g} s to {_MAX_SECONDS:g} s", param_hint=option)
    return seconds


def group(app: typer.Typer, text: str) -> None:
    """Register what `app` itself says in its help, with the common options before the command."""

    def callback(ctx: typer.Context, *, version: bool, **common: Any) -> None:  # noqa: ARG001 - is printed already
        ctx.obj = common

    own = inspect.Parameter("version", inspect.Parameter.KEYWORD_ONLY, annotation=_Version, default=False)
    app.callback()(_with_signature(callback, text, [own, *_COMMON.values()]))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Drop the prefix that typer 0.29 leaves on messages of pydantic: "Value error, 'xml' is not one of ..."."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")
        raise


class _Command(TyperCommand):
    """A command whose help lists its own options, and names the common ones in one sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options and arguments. Raises UsageError."""
        with plain_errors():
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        common = [option for option in self.params if getattr(option, "rich_help_panel", None) == _PANEL]
        for option in common:
            option.hidden = True  # type: ignore[attr-defined]  # an option has it, a parameter does not
        super().format_help(ctx, formatter)
        for option in common:
            option.hidden = False  # type: ignore[attr-defined]  # as above


def command(
    app: typer.Typer, name: str, function: Callable[..., None], *, spelled: Mapping[str, Any] | None = None
) -> None:
    """Register a command whose first parameter is the `Options`.

    One of mqadmin's says how it spells the parameters that it has; it is hidden, and takes -n, not -s.
    """
    _, *own = inspect.signature(function).parameters.values()
    common, also = dict(_COMMON), _ALSO
    if spelled is not None:
        own = [parameter.replace(annotation=spelled[parameter.name]) for parameter in own if parameter.name in spelled]
        common["server"] = common["server"].replace(annotation=_MqadminServer)
        also = also.replace("--server, ", "")

    def run(ctx: typer.Context, **values: Any) -> None:
        _check_text(values)
        after = {key: values.pop(key) for key in common}
        function(_merged(ctx.obj, after), **values)

    app.command(name, cls=_Command, hidden=spelled is not None, epilog=also)(
        _with_signature(run, function.__doc__ or "", [*own, *common.values()])
    )


def options_on_line(ctx: typer.Context) -> Options:
    """The options of a line that is not finished yet. Raises BadParameter."""
    return _merged(ctx.find_root().params, {key: ctx.params.get(key) for key in _COMMON})


def _merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> Options:
    """The options before and after the command: servers add up; else what is said after it wins."""
    merged = {key: value or before[key] for key, value in after.items()}
    merged["server"] = [*(before["server"] or ()), *(after["server"] or ())]
    return options_of(**merged)


def _check_text(values: Mapping[str, Any]) -> None:
    """Refuse bytes that are no text; no server could be sent them. Raises BadParameter."""
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise typer.BadParameter(f"{text!a} is not valid UTF-8", param_hint=name.upper())


def _with_signature(
    function: Callable[..., None], text: str, parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """The function as typer shall see it: with this text and these parameters."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    taken = [inspect.Parameter("ctx", keyword, annotation=typer.Context)]
    taken += [parameter.replace(kind=keyword) for parameter in parameters]
    # typer keeps the line breaks of all paragraphs but the first
    function.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    function.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]  # what inspect looks for
    return function
