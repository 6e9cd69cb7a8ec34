"""The effective settings of a boot and the source of each: flags, environment, files, defaults."""

import importlib.util
import json
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import SecretStr, ValidationError

from namesrv.settings.apache_properties import Translation, translate, translate_tls
from namesrv.settings.catalog import ENVIRONMENT_PREFIX, SETTINGS, Given, complaint, text_of
from namesrv.settings.certificate import Certificate
from namesrv.settings.flags import CommandLine
from namesrv.settings.model import Settings
from namesrv_remoting.access import AccessFile, parse_access_file
from namesrv_remoting.address_views import AddressViews, parse_address_views
from namesrv_remoting.aio.tls import TlsError
from namesrv_remoting.bodies.properties import PropertiesError, parse_properties
from namesrv_remoting.codes import HEARTBEAT_SECONDS
from namesrv_remoting.typed_toml import FileError, parse_toml, text_of_file
from namesrv_runtime.log import printable, quoted
from namesrv_runtime.state_dir import state_dir
from namesrv_runtime.suggestions import did_you_mean

# pydantic-settings (2.16) could replace the merge in `load`, a few lines, but not the code around it. Its errors name
# no source, so the origin of a wrong value would be unknown; it ignores an unknown NAMESRV_ variable silently; an
# unknown flag ends the process before any other problem is reported; its --help lacks ranges and environment variables,
# and offers a flag for the passphrase. Its import takes 0.2 s of processor time, half as much as a whole start takes.

# Other programs set these variables: RocketMQ's clients read NAMESRV_ADDR, our clients sign with a key and use TLS, and
# Kubernetes gives every pod the addresses of a service with the name namesrv (or namesrv-something). The daemon must
# not refuse to start because of them.
_NOT_OURS = re.compile(
    r"NAMESRV_(ADDR|ACCESS_KEY|SECRET_KEY|SECRET_KEY_FILE|TLS|TLS_VERIFY_HOST)=|"
    r"NAMESRV_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|"
    r"NAMESRV_(\w+_)?PORT=(tcp|udp|sctp)://"
)
# The modules of the wheel `namesrv-report` and of its requirements that compaction needs.
_COMPACTION = ("namesrv_spark_jobs", "duckdb")
_OUT_OF_RANGE = frozenset({"greater_than_equal", "less_than_equal", "finite_number"})


# The text that stands for a secret.
HIDDEN = json.dumps(str(SecretStr("x")))


class SettingsError(Exception):
    """The settings cannot be used; each problem is one line for a person."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Loaded:
    """The settings of a boot, and the contents of the files that they name."""

    settings: Settings
    # Setting -> where its value came from, `default` included.
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    # The accounts, if there is an access file.
    access: AccessFile | None = None
    # The address views, if there is such a file.
    address_views: AddressViews | None = None

    def __post_init__(self) -> None:
        """Refuse a server that would run without the rules of its access file, or without its address views."""
        if self.access is None and self.settings.access:
            raise ValueError(f"a server with access file {self.settings.access} cannot run without its accounts")
        if self.address_views is None and self.settings.address_views:
            raise ValueError(f"a server with address views {self.settings.address_views} cannot run without them")

    @classmethod
    def of(cls, settings: Settings, origins: Mapping[str, str] | None = None) -> Self:
        """Read the files that the settings name. Raises SettingsError."""
        return cls(settings, origins or {}, (), _read_access_file(settings), _read_address_views(settings))


def load(line: CommandLine, environ: Mapping[str, str]) -> Loaded:
    """Load the settings. Raises SettingsError.

    Of several values the first counts: command line, environment, TOML file, properties file, TLS properties, default.
    """
    sources = [
        _from_properties(line.tls_properties_file, translate_tls),
        _from_properties(line.properties_file, translate),
        _from_toml(line.toml_file),
        _from_environment(environ),
    ]
    given: dict[str, Given] = {"data_dir": Given(state_dir(environ, "namesrv"), "default")}
    for source in sources:
        given |= source.given
    given |= line.given
    problems = [*line.problems, *(problem for source in reversed(sources) for problem in source.problems)]
    settings = None
    try:
        settings = Settings.model_validate({name: item.value for name, item in given.items()})
    except ValidationError as error:
        problems += (_problem(given, dict(detail)) for detail in error.errors(include_url=False))
    access, address_views = None, None
    if settings is not None:
        try:
            access = _read_access_file(settings)
        except SettingsError as error:
            problems += error.problems
        try:
            address_views = _read_address_views(settings)
        except SettingsError as error:
            problems += error.problems
    problems += () if settings is None else _contradictions(settings)
    if settings is None or problems:
        raise SettingsError(problems)
    origins = {name: given[name].origin if name in given else "default" for name in SETTINGS}
    warnings = [*(warning for source in sources for warning in source.warnings), *_doubts(settings)]
    return Loaded(settings, origins, tuple(warnings), access, address_views)


def _read_access_file(settings: Settings) -> AccessFile | None:
    """Read the accounts of the access file, if the settings name one.

    Raises:
        SettingsError: the file cannot be read or used.
    """
    path = settings.access_path
    if path is None:
        return None
    with _problems_of(path):
        return parse_access_file(_text_of_file(str(path)))


def _read_address_views(settings: Settings) -> AddressViews | None:
    """Read the address views file, if the settings name one. Raises SettingsError."""
    if not settings.address_views:
        return None
    with _problems_of(settings.address_views):
        return parse_address_views(_text_of_file(settings.address_views))


@contextmanager
def _problems_of(path: Path | str) -> Iterator[None]:
    """Raise the problems of a file as a SettingsError that names the file."""
    try:
        yield
    except (SettingsError, FileError) as error:
        raise SettingsError([f"{printable(str(path))}: {printable(each)}" for each in error.problems]) from None


def config_table(loaded: Loaded) -> str:
    """Return all settings with value and origin, one per line, as a TOML file that gives the same settings again."""
    values = {name: _toml_value(getattr(loaded.settings, name)) for name in SETTINGS}
    name_width = max(map(len, values))
    value_width = max(map(len, values.values()))
    return "".join(
        # The placeholder of a secret is a comment, so that it is not read back.
        f"{'# ' if value == HIDDEN else ''}{name:{name_width}} = {value:{value_width}}  # {loaded.origins[name]}\n"
        for name, value in values.items()
    )


def _from_environment(environ: Mapping[str, str]) -> Translation:
    names = {setting.environment: name for name, setting in SETTINGS.items()}
    source = Translation()
    for variable, value in environ.items():
        if variable in names:
            source.given[names[variable]] = Given(value, f"environment {variable}")
        elif variable.startswith(ENVIRONMENT_PREFIX) and not _NOT_OURS.match(f"{variable}={value}"):
            similar = did_you_mean(variable, names, prefix=ENVIRONMENT_PREFIX)
            source.problems.append(f"unknown environment variable {quoted(variable)}{similar}")
    return source


def _from_toml(path: str | None) -> Translation:
    source = Translation()
    if path is None:
        return source
    try:
        values = parse_toml(_text_of_file(path))
    except (SettingsError, FileError) as error:
        source.problems.append(f"{printable(path)}: {printable(str(error))}")
        return source
    for name, value in values.items():
        if name in SETTINGS:
            source.given[name] = Given(value, f"file {printable(path)}")
        else:
            source.problems.append(f"unknown key {quoted(name)} in {printable(path)}{did_you_mean(name, SETTINGS)}")
    return source


def _from_properties(path: str | None, translate: Callable[[Mapping[str, str], str], Translation]) -> Translation:
    if path is None:
        return Translation()
    try:
        return translate(parse_properties(_text_of_file(path)), f"file {printable(path)}")
    except (SettingsError, PropertiesError) as error:
        return Translation(problems=[f"{printable(path)}: {printable(str(error))}"])


def _text_of_file(path: str) -> str:
    try:
        return text_of_file(Path(path))
    except OSError as error:
        raise SettingsError([f"cannot be read: {(error.strerror or str(error)).lower()}"]) from None
    except FileError as error:
        raise SettingsError([f"is {error}"]) from None


def _problem(given: Mapping[str, Given], detail: Mapping[str, Any]) -> str:
    setting = SETTINGS[detail["loc"][0]]
    wrong = f"is not {setting.demand}"
    if detail["type"] == "value_error":  # the message is in our own words already
        wrong = str(detail["ctx"]["error"])
    elif detail["type"] in _OUT_OF_RANGE and setting.between:
        wrong = f"is not between {text_of(setting.between[0])} and {text_of(setting.between[1])}"
    return complaint(given[setting.name], setting, wrong)


def _contradictions(settings: Settings) -> Iterator[str]:
    """Yield the settings that contradict each other."""
    try:
        Certificate.read(settings)
    except TlsError as error:
        yield f"TLS: {printable(str(error))}"
    if settings.heartbeat_log_compact != "off" and not all(map(importlib.util.find_spec, _COMPACTION)):
        yield f"heartbeat-log-compact {settings.heartbeat_log_compact} needs namesrv-report, which is not installed"
    if (logs := settings.audit_log_path) is not None and logs == settings.heartbeat_log_path:
        # The files of both logs have the same names.
        both = f"audit-log-dir and heartbeat-log-dir are both {printable(str(logs))}"
        yield f"{both}: each log needs a directory of its own"


def _doubts(settings: Settings) -> list[str]:
    """Return warnings about settings that are allowed, but probably mistakes."""
    doubts = []
    expiry = settings.broker_expiry_seconds
    if expiry < HEARTBEAT_SECONDS:
        doubts.append(
            f"broker-expiry-seconds {text_of(expiry)} is less than the {HEARTBEAT_SECONDS:g} s between two heartbeats: "
            "healthy brokers will be evicted"
        )
    files = settings.tls_files
    key_file = None if settings.tls_key_password.get_secret_value() else files.key_file or files.cert_file
    doubts += (
        f"{printable(str(path))} holds secrets and is readable by every user: run chmod o-rwx {printable(str(path))}"
        for path in (settings.access_path, key_file)
        if path is not None and _is_open_to_others(path)
    )
    if settings.tls_client_auth == "require" and settings.tls_mode == "permissive":
        doubts.append(
            "tls-client-auth require means nothing to peers without TLS, which tls-mode permissive lets in: "
            "use enforcing once all peers speak TLS"
        )
    if settings.tls_cert_file and not settings.needs_certificate:
        doubts.append("tls-cert-file has no effect: tls-mode is off")
    if settings.tls_client_auth != "none" and settings.tls_mode == "off":
        doubts.append(f"tls-client-auth {settings.tls_client_auth} has no effect: tls-mode is off")
    if settings.http_tls_client_auth != "none" and not settings.http_tls:
        doubts.append(f"http-tls-client-auth {settings.http_tls_client_auth} has no effect: http-tls is off")
    if settings.tls_crl_file and not settings.wants_client_certificates:
        doubts.append("tls-crl-file has no effect: no client certificates are asked for, see tls-client-auth")
    return doubts


def _is_open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IRWXO)
    except OSError:
        return False


def _toml_value(value: object) -> str:
    if isinstance(value, bool | int | float):
        return text_of(value)
    # A TOML string is a JSON string, except for DEL, which has to be escaped.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
