"""The settings of a broker agent, and the file agent.toml of the side-car.

cluster_name = "c1"
broker_name = "broker-a"
broker_addr = "10.0.0.5:10911"
name_servers = "10.0.0.1:9876;10.0.0.2:9876"

[[topics]]
topic_name = "orders"
read_queue_nums = 8
write_queue_nums = 8
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from namesrv_broker_agent.topics import by_name
from namesrv_remoting.aio.credentials import SigningSettings
from namesrv_remoting.aio.tls import TlsClientSettings
from namesrv_remoting.bodies.advertised import check_advertised
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import HEARTBEAT_SECONDS
from namesrv_remoting.typed_toml import FileError, parse_toml, text_of_file
from namesrv_runtime.address import parse_address
from namesrv_runtime.name_servers import REFRESH_SECONDS, check_source
from namesrv_runtime.settings import PathArgument

MAX_NAME_CHARACTERS = 255
_EVERY_INTERFACE: Final = ("0.0.0.0", "::")  # noqa: S104 - addresses that are refused


def _checked_name(name: str) -> str:
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or " " in name:
        raise ValueError(f"must be 1 to {MAX_NAME_CHARACTERS} printable characters without blanks")
    return name


def _checked_address(address: str) -> str:
    parse_address(address)
    if not address.isprintable() or " " in address:
        raise ValueError("must be printable characters without blanks")
    return address


Name = Annotated[str, AfterValidator(_checked_name)]
Address = Annotated[str, AfterValidator(_checked_address)]


def _checked_advertised(addresses: dict[str, str]) -> dict[str, str]:
    check_advertised(addresses)
    return addresses


Advertised = Annotated[dict[str, str], AfterValidator(_checked_advertised)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class AgentSettings(SigningSettings, TlsClientSettings):
    """The settings of one broker and its agent. The constructor raises a ValueError that names each wrong value."""

    cluster_name: Name
    broker_name: Name
    # the address at which producers and consumers reach the broker
    broker_addr: Address
    # 0 is the master; a NameServer keeps ids as Java's long
    broker_id: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = 0
    # the address from which slaves replicate
    ha_server_addr: Address | None = None
    # the addresses of the broker, and of its HA server, for peers on other networks: name of an address view of the
    # NameServers -> address
    advertised: Advertised = Field(default_factory=dict)
    advertised_ha: Advertised = Field(default_factory=dict)
    # the broker's zone, for clients that request only the brokers of their own zone
    zone_name: Name | None = None
    # True: the prime slave acts as master while the master is gone
    enable_acting_master: bool = False
    # "a:9876;b:9876", "env:NAME", "file:PATH", "dns:HOST:PORT" or an http(s) URL; empty is "env:NAMESRV_ADDR"
    name_servers: Annotated[str, AfterValidator(check_source)] = ""
    # "auto" finds out what each server speaks; "native" needs no such request
    protocol: Literal["native", "rocketmq", "auto"] = "auto"
    # The agent sends a heartbeat every 0.9 to 1 times this, so that four always fit into the servers' 120 s.
    heartbeat_seconds: Seconds = HEARTBEAT_SECONDS
    # the time without a heartbeat after which a server evicts the broker; None: the server's setting
    expiry_seconds: Seconds | None = None
    # the connection counts as dead when a response takes longer
    response_timeout_seconds: Seconds = 5.0
    # the longest time of one attempt to connect
    connect_timeout_seconds: Seconds = 3.0
    # The longest pause between attempts to reach a server that is not overloaded; below a second, so that a restarted
    # server knows the broker within a second.
    max_backoff_seconds: Annotated[float, Field(gt=0, le=60)] = 0.8
    # the interval at which clients poll routes; a drain waits for one interval
    client_poll_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    # the longest time of stop()
    stop_seconds: Seconds = 3.0
    # the interval at which the list of NameServers is read again
    refresh_seconds: Seconds = REFRESH_SECONDS
    # the file that keeps topics and their DataVersion over restarts of the broker
    state_file: PathArgument | None = None

    @field_validator("protocol")
    @classmethod
    def _carries_advertised(cls, protocol: str, known: ValidationInfo) -> str:
        if protocol == "rocketmq" and (known.data.get("advertised") or known.data.get("advertised_ha")):
            raise ValueError("advertised addresses need the native protocol")
        return protocol

    @field_validator("expiry_seconds")
    @classmethod
    def _longer_than_a_heartbeat(cls, seconds: float | None, known: ValidationInfo) -> float | None:
        heartbeat = known.data.get("heartbeat_seconds")
        if seconds is not None and heartbeat is not None and seconds <= heartbeat:
            raise ValueError(f"must be longer than heartbeat_seconds ({heartbeat:g})")
        return seconds


def check_settings(settings: object) -> None:
    """Raise a TypeError for a value that is no AgentSettings."""
    if not isinstance(settings, AgentSettings):
        raise TypeError(f"settings: {type(settings).__name__} instead of AgentSettings")


def doubts(settings: AgentSettings) -> list[str]:
    """Warnings about settings that are allowed, but probably mistakes."""
    return [
        f"{name} {address} is the address of every interface, to which clients cannot connect"
        for name, address in (("broker_addr", settings.broker_addr), ("ha_server_addr", settings.ha_server_addr))
        if address is not None and parse_address(address)[0] in _EVERY_INTERFACE
    ]


class ConfigFileError(ValueError):
    """The configuration file cannot be used; the message names the file and the problem."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The content of a configuration file: the broker and its topics."""

    settings: AgentSettings
    topics: tuple[TopicConfig, ...]


def read_config(path: Path) -> AgentConfig:
    """Read and check a file. Raises ConfigFileError if the file is unreadable, not TOML, or has an invalid value."""
    try:
        data = parse_toml(text_of_file(path))
    except OSError as error:
        raise ConfigFileError(f"{path}: {error.strerror or error}") from error
    except FileError as error:
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
