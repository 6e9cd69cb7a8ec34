"""The file agent.toml of the side-car.

cluster_name = "c1"
broker_name = "broker-a"
broker_addr = "10.0.0.5:10911"
name_servers = "10.0.0.1:9876;10.0.0.2:9876"

[[topics]]
topic_name = "orders"
read_queue_nums = 8
write_queue_nums = 8
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.topics import by_name
from namesrv_remoting.bodies.topic import TopicConfig


class ConfigFileError(ValueError):
    """The file cannot be used; the message says which file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """A whole file: the broker, and its topics."""

    settings: AgentSettings
    topics: tuple[TopicConfig, ...]


def read_config(path: Path) -> AgentConfig:
    """The file's content, checked.

    Raises:
        ConfigFileError: it cannot be read, is no TOML, or says something that cannot be.
    """
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigFileError(f"{path}: {error}") from error
    entries = data.pop("topics", [])
    try:
        return AgentConfig(AgentSettings(**data), _topics(entries))
    except ValueError as error:
        raise ConfigFileError(f"{path}: {error}") from error


def _topics(entries: object) -> tuple[TopicConfig, ...]:
    if not isinstance(entries, list):
        raise ValueError(f"topics: {entries!r} is not an array of tables, [[topics]]")  # noqa: TRY004 - as below
    return tuple(by_name(_topic(number, entry) for number, entry in enumerate(entries, start=1)).values())


def _topic(number: int, entry: object) -> TopicConfig:
    if not isinstance(entry, dict):
        raise ValueError(f"topic {number} is not a table")  # noqa: TRY004 - bad input, not a bad call
    if unknown := [key for key in entry if key not in TopicConfig.__struct_fields__]:
        raise ValueError(f"topic {number}: unknown field '{unknown[0]}'")
    try:
        return msgspec.convert(entry, TopicConfig)
    except msgspec.ValidationError as error:
        raise ValueError(f"topic {number}: {error}") from error
