"""The options of every command: the servers, the output format, the interval."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

from namesrv_runtime.suggestions import did_you_mean

if TYPE_CHECKING:
    # These modules are imported where they are used: without a server, above all for help, pydantic and asyncio are not
    # needed.
    from namesrv_client.ctl.contexts import Context
    from namesrv_remoting.aio.credentials import SigningSettings
    from namesrv_remoting.aio.tls import TlsClientSettings
    from namesrv_runtime.settings import CheckedSettings

S = TypeVar("S", bound="CheckedSettings")
OutputFormat = Literal["table", "json", "yaml"]

_UNITS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
# A repaint takes longer than a shorter interval.
_MIN_WATCH_SECONDS: Final = 0.1
_MAX_SECONDS: Final = 86_400.0

# Heading of these options in the help.
PANEL: Final = "Options of every command"


def _option(*names: str, **values: Any) -> Any:
    return typer.Option(*names, show_default=False, rich_help_panel=PANEL, **values)


def context_names(incomplete: str) -> list[str]:
    """Saved contexts that begin with the text, for completion in a shell."""
    from namesrv_client.ctl.contexts import ContextError, read_contexts  # noqa: PLC0415  # see TYPE_CHECKING above

    try:
        return sorted(name for name in read_contexts().by_name if name.startswith(incomplete))
    except ContextError:
        return []


_Servers = Annotated[
    list[str] | None,
    _option(
        "--server",
        "-s",
        metavar="HOST[:PORT]",
        help="NameServer; the port defaults to 9876. Repeat the option or separate several with ',' or ';'. "
        "Default: NAMESRV_ADDR, else 127.0.0.1:9876.",
    ),
]
_Context = Annotated[
    str | None,
    _option(
        "--context",
        metavar="NAME",
        help="Saved servers and connection options (see: context add). Default: the one in use, if neither "
        "--server nor NAMESRV_ADDR names servers.",
        autocompletion=context_names,
    ),
]
_Output = Annotated[OutputFormat | None, _option("--output", "-o", help="Output format; default: table.")]
_Watch = Annotated[
    str | None,
    _option("--watch", metavar="TIME", help="Repeat at this interval (2s, 500ms) until Ctrl-C, which exits with 0."),
]
_Timeout = Annotated[
    str | None,
    _option("--timeout", metavar="TIME", help="Limit for each response (500ms, 10s); default: 3s."),
]
_NoColor = Annotated[bool, _option("--no-color", help="Plain text; the same as setting NO_COLOR.")]
_Yes = Annotated[bool, _option("--yes", "-y", help="Do not ask for confirmation.")]
_Tls = Annotated[bool, _option("--tls", help="Connect over TLS; or NAMESRV_TLS=true.")]
_TlsCaFile = Annotated[
    Path | None,
    _option(
        "--tls-ca-file",
        metavar="FILE",
        help="CAs of the servers' certificates (PEM); or NAMESRV_TLS_CA_FILE. Default: the system's.",
    ),
]
_TlsCrlFile = Annotated[
    Path | None,
    _option(
        "--tls-crl-file",
        metavar="FILE",
        help="Revocation lists of these CAs (PEM), one of each; or NAMESRV_TLS_CRL_FILE.",
    ),
]
_TlsCertFile = Annotated[
    Path | None,
    _option("--tls-cert-file", metavar="FILE", help="Own certificate (PEM); or NAMESRV_TLS_CERT_FILE."),
]
_TlsKeyFile = Annotated[
    Path | None,
    _option(
        "--tls-key-file",
        metavar="FILE",
        help="Its private key (PEM), if that is in a file of its own; or NAMESRV_TLS_KEY_FILE. A passphrase comes "
        "from NAMESRV_TLS_KEY_PASSWORD only.",
    ),
]
_NoTlsVerifyHost = Annotated[
    bool,
    _option(
        "--no-tls-verify-host",
        help="Accept certificates of these CAs for any host; or false in NAMESRV_TLS_VERIFY_HOST.",
    ),
]


@dataclass(frozen=True, slots=True)
class Options:
    """The common options, checked."""

    addresses: tuple[str, ...]
    output: OutputFormat
    # None: the command runs once.
    watch_seconds: float | None
    timeout_seconds: float
    color: bool
    yes: bool
    # Settings of signing and TLS from options or the context. The environment provides the others, and secrets come
    # from the environment only: every user of the machine can read the arguments of a process.
    signing_given: Mapping[str, object] = field(default_factory=dict)
    tls_given: Mapping[str, object] = field(default_factory=dict)

    @property
    def signing(self) -> "SigningSettings":
        """The settings for signing requests. Raises BadParameter."""
        from namesrv_remoting.aio.credentials import SigningSettings  # noqa: PLC0415  # see TYPE_CHECKING above

        return _checked(SigningSettings, self.signing_given)

    @property
    def tls(self) -> "TlsClientSettings":
        """The TLS settings of connections. Raises BadParameter."""
        from namesrv_remoting.aio.tls import TlsClientSettings  # noqa: PLC0415  # see TYPE_CHECKING above

        return _checked(TlsClientSettings, self.tls_given)


def options_of(  # noqa: PLR0913 - each is an option
    *,
    server: _Servers = None,
    context: _Context = None,
    output: _Output = None,
    watch: _Watch = None,
    timeout: _Timeout = None,
    no_color: _NoColor = False,
    yes: _Yes = False,
    tls: _Tls = False,
    tls_ca_file: _TlsCaFile = None,
    tls_crl_file: _TlsCrlFile = None,
    tls_cert_file: _TlsCertFile = None,
    tls_key_file: _TlsKeyFile = None,
    no_tls_verify_host: _NoTlsVerifyHost = False,
) -> Options:
    """The options of the command line, with their defaults. Raises BadParameter."""
    saved = _saved(context, is_named=bool(server or os.environ.get("NAMESRV_ADDR")))
    given = {
        "tls": tls or None,
        "tls_ca_file": tls_ca_file,
        "tls_crl_file": tls_crl_file,
        "tls_cert_file": tls_cert_file,
        "tls_key_file": tls_key_file,
        "tls_verify_host": False if no_tls_verify_host else None,
    }
    tls_given = {name: value for name, value in given.items() if value is not None}
    return Options(
        addresses=_addresses(server, saved),
        output=output or "table",
        watch_seconds=None if watch is None else duration(watch, "--watch", at_least=_MIN_WATCH_SECONDS),
        timeout_seconds=duration(timeout or "3s", "--timeout"),
        color=not no_color,
        yes=yes,
        signing_given={} if saved is None else saved.signing(),
        tls_given=tls_given if saved is None else saved.tls_settings() | tls_given,
    )


def _addresses(given: Sequence[str] | None, saved: "Context | None") -> tuple[str, ...]:
    """The servers of the command line, else of the context, else of the environment. Raises BadParameter."""
    if given:
        return addresses_of(given, "--server")
    if saved is not None:
        return addresses_of(saved.servers, "--context")
    return addresses_of([os.environ.get("NAMESRV_ADDR") or "127.0.0.1"], "NAMESRV_ADDR")


def _saved(name: str | None, *, is_named: bool) -> "Context | None":
    """The context of that name, else the current one unless servers are named otherwise. Raises BadParameter."""
    if name is None and is_named:
        return None
    from namesrv_client.ctl.contexts import ContextError, read_contexts  # noqa: PLC0415  # see TYPE_CHECKING above

    try:
        contexts = read_contexts()
        chosen = name or contexts.current
        return None if chosen is None else contexts.named(chosen)
    except ContextError as error:
        raise typer.BadParameter(str(error), param_hint="--context") from None


def _checked(kind: type[S], given: Mapping[str, object]) -> S:
    """Settings from the given values and the environment. Raises BadParameter."""
    try:
        return kind(**given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="options or environment") from None


def addresses_of(servers: Sequence[str], where: str) -> tuple[str, ...]:
    """The servers that an option or variable names, each with its port. Raises BadParameter."""
    from namesrv_runtime.name_servers import parse_servers  # noqa: PLC0415  # see TYPE_CHECKING above

    try:
        return parse_servers(servers)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=where) from error


def duration(text: str, option: str, *, at_least: float = 0.001) -> float:
    """The seconds of `2s`, `500ms`, `1m` or `2`. Raises BadParameter."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(ms|s|m|h|)", text.strip(), re.ASCII)
    if match is None:
        raise typer.BadParameter(f"not a valid duration: {text!r} (for example 500ms, 2s, 1m)", param_hint=option)
    seconds = float(match[1]) * _UNITS[match[2]]
    if not at_least <= seconds <= _MAX_SECONDS:
        raise typer.BadParameter(f"{text!r} is outside {at_least:g} s to {_MAX_SECONDS:g} s", param_hint=option)
    return seconds


def check_known(given: Iterable[str], known: Sequence[str], *, option: str) -> None:
    """Raise a usage error that names all values if one of the given values is unknown."""
    for value in given:
        if value not in known:
            hint = did_you_mean(value, known)
            raise typer.BadParameter(f"unknown value {value!r}{hint}: use {', '.join(known)}", param_hint=option)
