"""The command line: one flag for each setting, and a few other flags."""

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import chain, groupby

from namesrv.settings.catalog import SETTINGS, Given, Setting
from namesrv_runtime.log import quoted
from namesrv_runtime.suggestions import did_you_mean

_USAGE = "namesrv [--config FILE] [-c FILE] [settings]"
_DESCRIPTION = (
    "A NameServer for message brokers: brokers register with it, and clients ask it which brokers have their topics. "
    "Without flags it serves on port 9876."
)
_EPILOG = (
    "Flags take precedence over the environment; then come the TOML file, the properties file and the defaults. "
    "In the TOML file a setting has the name of its flag with underscores: listen_port = 9876. "
    "--print-config shows each value and where it came from, in a form that --config reads."
)
# Ending of a setting's name -> the name of its value in --help.
_METAVARS = {
    "_seconds": "SECONDS",
    "_days": "DAYS",
    "_percent": "PERCENT",
    "_bytes": "BYTES",
    "_dir": "DIRECTORY",
    "access": "FILE",
    "_file": "FILE",
    "_host": "ADDRESS",
    "_hosts": "NAMES",
    "_name": "NAME",
    "_listen": "ADDRESS:PORT",
    "_max_age": "SECONDS",
    "address_views": "FILE",
    "listeners": "NAME=PORT,...",
    "name_servers": "HOST:PORT;...",
    "broker_metrics_target": "HOST:PORT",
    "zone_fallback": "RULES",
}
# Messages of argparse -> our messages.
_REWORDED = {"expected one argument": "needs a value", "ignored explicit argument": "takes no value"}


class Action(Enum):
    """The action that the arguments request."""

    RUN = auto()
    PRINT_CONFIG = auto()
    CHECK_CONFIG = auto()
    HELP = auto()
    VERSION = auto()


# Names of a flag -> the field for its path, and its help.
_FILES = {
    ("--config",): ("toml_file", "TOML file with settings."),
    ("-c", "--properties"): (
        "properties_file",
        "An Apache NameServer's namesrv.properties, unchanged. A warning names each key that has no effect here.",
    ),
    ("--tls-properties",): (
        "tls_properties_file",
        "An Apache NameServer's tls.properties, unchanged. tls-mode is permissive then, unless it is set, as there.",
    ),
}
_ACTIONS = {
    ("-p", "--print-config"): (Action.PRINT_CONFIG, "Print each setting with its value and origin, and exit."),
    ("--check-config",): (Action.CHECK_CONFIG, "Check all settings and exit: with 0 if they are valid, else with 2."),
    ("--version",): (Action.VERSION, "Print the version and exit."),
    ("-h", "--help"): (Action.HELP, "Print this help and exit."),
}
_KNOWN = [*chain(*_FILES, *_ACTIONS, *(setting.flags for setting in SETTINGS.values()))]


@dataclass(frozen=True)
class CommandLine:
    """The parsed arguments; a command line with problems is parsed as far as possible."""

    action: Action
    given: dict[str, Given]
    toml_file: str | None
    properties_file: str | None
    tls_properties_file: str | None
    problems: tuple[str, ...]


def parse(argv: Sequence[str]) -> CommandLine:
    """Parse the arguments; values are checked later, together with values from other sources."""
    parsed = argparse.Namespace(action=Action.RUN, toml_file=None, properties_file=None, tls_properties_file=None)
    try:
        _, unknown = _parser().parse_known_args(argv, parsed)
        problems = list(_complaints(unknown))
    except argparse.ArgumentError as error:
        message = next((ours for theirs, ours in _REWORDED.items() if error.message.startswith(theirs)), error.message)
        problems = [f"flag {error.argument_name} {message}" if error.argument_name else message]
    given = {name: value for name, value in vars(parsed).items() if name in SETTINGS}
    files = (parsed.toml_file, parsed.properties_file, parsed.tls_properties_file)
    return CommandLine(parsed.action, given, *files, tuple(problems))


def help_text() -> str:
    """Return the help with every setting and its consequence, as wide as the terminal."""
    return _parser().format_help()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="namesrv",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=partial(_HelpFormatter, max_help_position=8),
        add_help=False,
        allow_abbrev=False,  # an abbreviation can become another flag's in the next version
        exit_on_error=False,
    )
    group = parser.add_argument_group("Configuration")
    for names, (place, text) in _FILES.items():
        group.add_argument(*names, dest=place, metavar="FILE", help=text)
    for names, (action, text) in _ACTIONS.items():
        group.add_argument(*names, dest="action", action="store_const", const=action, help=text)
    for topic, settings in groupby(SETTINGS.values(), key=lambda setting: setting.topic):
        known = list(settings)
        secrets = [f"{setting.environment}: {_help(setting)}" for setting in known if not setting.flags]
        group = parser.add_argument_group(topic, "\n".join(secrets) or None)
        for setting in known:
            if not setting.flags:
                continue
            flag, *negations = setting.flags
            # The last of several flags counts.
            for off in negations:
                value = Given("false", f"flag {off}")
                group.add_argument(
                    off,
                    dest=setting.name,
                    action="store_const",
                    const=value,
                    default=argparse.SUPPRESS,
                    help=argparse.SUPPRESS,
                )
            group.add_argument(
                flag,
                dest=setting.name,
                type=partial(Given, origin=f"flag {flag}"),
                nargs="?" if negations else None,
                const=Given("true", f"flag {flag}") if negations else None,
                default=argparse.SUPPRESS,
                metavar=_metavar(setting),
                help=_help(setting).replace("%", "%%"),
            )
    return parser


def _metavar(setting: Setting) -> str:
    if setting.choices:
        return "|".join(setting.choices)
    return next((word for ending, word in _METAVARS.items() if setting.name.endswith(ending)), "NUMBER")


def _help(setting: Setting) -> str:
    allowed = f" {setting.may_be};" if setting.between else ""
    default = setting.default or "empty"
    return f"{setting.consequence}\n[default {default};{allowed} environment {setting.environment}]"


def _complaints(unknown: Sequence[str]) -> Iterable[str]:
    # The word after an unknown flag was meant as the flag's value, and is not reported separately.
    is_value = False
    for word in unknown:
        flag, equals, _ = word.partition("=")
        if word.startswith("-"):
            yield f"unknown flag {quoted(flag)}{did_you_mean(flag, _KNOWN, prefix='--')}"
        elif not is_value:
            yield f"unexpected argument {quoted(word)}"
        is_value = word.startswith("-") and not equals and not is_value


class _HelpFormatter(argparse.HelpFormatter):
    """Formats each flag on a line of its own, with its text below and the facts in brackets on the last line."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line for part in text.split("\n") for line in textwrap.wrap(part, width)]

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if action.nargs == "?":
            return action.option_strings[0].replace("--", "--[no-]", 1)
        return super()._format_action_invocation(action)
