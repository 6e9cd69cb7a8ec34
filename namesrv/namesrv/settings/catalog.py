"""Facts about each setting, taken from its declaration, for help, files and error messages."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr

from namesrv.settings.live import LIVE
from namesrv.settings.model import DEFAULTS_IN_WORDS, HEADINGS, NEEDS_RESTART, Settings
from namesrv_runtime.log import quoted

ENVIRONMENT_PREFIX = "NAMESRV_"
_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    SecretStr: "text",
}


@dataclass(frozen=True)
class Given:
    """A value as its source spells it: `flag --listen-port`, `environment NAMESRV_X`, `file F` or `default`."""

    value: object
    origin: str


@dataclass(frozen=True)
class Setting:
    """One setting with its texts for people."""

    name: str
    topic: str
    consequence: str
    kind: Any  # int, float, bool, str, Path, SecretStr or Literal
    between: tuple[float, float] | None
    default: str
    # Requests change live settings, which a reload changes, too. All others are changed by a reload or only by a
    # restart.
    changed_by: Literal["request", "reload", "restart"]

    @property
    def title(self) -> str:
        """The name of the setting in messages, and on the command line after two dashes."""
        return self.name.replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the setting; a secret has no flag, since all users of the machine can read command lines."""
        if self.kind is SecretStr:
            return ()
        return (f"--{self.title}", f"--no-{self.title}") if self.kind is bool else (f"--{self.title}",)

    @property
    def environment(self) -> str:
        """The environment variable of the setting."""
        return f"{ENVIRONMENT_PREFIX}{self.name.upper()}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of a setting with a few words as values."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def demand(self) -> str:
        """A description of the values, to be read after `is not`."""
        return f"one of {', '.join(self.choices)}" if self.choices else _KINDS[self.kind]

    @property
    def may_be(self) -> str:
        """The allowed values, as in a table."""
        if self.between is None:
            return ", ".join(self.choices) or self.demand
        return " to ".join(map(text_of, self.between))


def text_of(value: object) -> str:
    """Return a value as it is written in environments and files."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def complaint(given: Given, setting: Setting, wrong: str) -> str:
    """Return a message of one line about one value."""
    value = "its value" if setting.kind is SecretStr else quoted(text_of(given.value))
    return f"{setting.title}: {value} {wrong} (from {given.origin})"


def _catalog() -> Iterable[Setting]:
    topic = ""
    for name, field in Settings.model_fields.items():
        topic = HEADINGS.get(name, topic)
        low = next((fact.ge for fact in field.metadata if hasattr(fact, "ge")), None)
        high = next((fact.le for fact in field.metadata if hasattr(fact, "le")), None)
        yield Setting(
            name=name,
            topic=topic,
            consequence=re.sub(r"\s+", " ", field.description or ""),
            kind=field.annotation,
            between=None if low is None or high is None else (low, high),
            default=DEFAULTS_IN_WORDS.get(name) or text_of(field.default),
            changed_by="request" if name in LIVE else "restart" if NEEDS_RESTART in field.metadata else "reload",
        )


# Field name -> facts about the setting, in the order of the declaration.
SETTINGS: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in _catalog()})
