"""The agent's settings, and errors that say what is wrong with them."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from namesrv_broker_agent import AgentSettings

NEEDED: dict[str, Any] = {"cluster_name": "c1", "broker_name": "broker-a", "broker_addr": "10.0.0.5:10911"}


def test_three_values_are_enough() -> None:
    """The rest is that of a master that registers with the servers in the environment, as the README says."""
    settings = AgentSettings(**NEEDED)

    assert {
        "cluster_name": "c1",
        "broker_name": "broker-a",
        "broker_addr": "10.0.0.5:10911",
        "broker_id": 0,
        "ha_server_addr": None,
        "zone_name": None,
        "enable_acting_master": False,
        "name_servers": "",
        "protocol": "auto",
        "heartbeat_seconds": 30.0,
        "expiry_seconds": None,
        "answer_timeout_seconds": 5.0,
        "connect_timeout_seconds": 3.0,
        "max_backoff_seconds": 0.8,
        "client_poll_seconds": 30.0,
        "stop_seconds": 3.0,
        "refresh_seconds": 120.0,
        "state_file": None,
    } == settings.model_dump()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("broker_name", "x" * 255),
        ("broker_name", "брокер"),
        ("broker_addr", "[2001:db8::1]:10911"),
        ("broker_addr", "broker.example:65535"),
        ("broker_id", (1 << 63) - 1),
        ("ha_server_addr", "10.0.0.5:10912"),
        ("zone_name", "eu-1"),
        ("name_servers", "dns:namesrv.example:9876"),
        ("protocol", "rocketmq"),
        ("heartbeat_seconds", 86_400.0),
        ("expiry_seconds", 30.1),
        ("client_poll_seconds", 0.0),
        ("state_file", Path("topics.json")),
    ],
)
def test_value_is_taken(field: str, value: object) -> None:
    """Values at their limits, and in every form."""
    assert value == getattr(AgentSettings(**{**NEEDED, field: value}), field)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cluster_name", "", "cluster_name: '': must be 1 to 255 printable characters without blanks"),
        ("broker_name", "", "broker_name: '': must be 1 to 255 printable characters without blanks"),
        ("broker_name", "a b", "broker_name: 'a b': must be 1 to 255 printable characters without blanks"),
        ("broker_name", "a\n", "broker_name: 'a\\n': must be 1 to 255 printable characters without blanks"),
        ("broker_name", None, "broker_name: None: input should be a valid string"),
        ("zone_name", "", "zone_name: '': must be 1 to 255 printable characters without blanks"),
        ("broker_addr", "10.0.0.5", "broker_addr: '10.0.0.5': address '10.0.0.5' is not host:port or [ipv6]:port"),
        ("broker_addr", "a:0", "broker_addr: 'a:0': address 'a:0' is not host:port or [ipv6]:port"),
        ("broker_addr", ":1", "broker_addr: ':1': address ':1' is not host:port or [ipv6]:port"),
        ("broker_addr", "a :1", "broker_addr: 'a :1': must be printable characters without blanks"),
        ("ha_server_addr", "a", "ha_server_addr: 'a': address 'a' is not host:port or [ipv6]:port"),
        ("name_servers", "a", "name_servers: 'a': name servers 'a': address 'a' is not host:port or [ipv6]:port"),
        ("broker_id", -1, "broker_id: -1: input should be greater than or equal to 0"),
        ("broker_id", 1 << 63, "broker_id: 9223372036854775808: input should be less than 9223372036854775808"),
        ("broker_id", True, "broker_id: True: input should be a valid integer"),
        ("broker_id", "0", "broker_id: '0': input should be a valid integer"),
        ("protocol", "http", "protocol: 'http': input should be 'native', 'rocketmq' or 'auto'"),
        ("heartbeat_seconds", 0, "heartbeat_seconds: 0: input should be greater than 0"),
        ("heartbeat_seconds", 86_401, "heartbeat_seconds: 86401: input should be less than or equal to 86400"),
        ("heartbeat_seconds", float("nan"), "heartbeat_seconds: nan: input should be a finite number"),
        ("stop_seconds", float("inf"), "stop_seconds: inf: input should be a finite number"),
        ("expiry_seconds", 30, "expiry_seconds: 30: must be longer than heartbeat_seconds (30)"),
        ("max_backoff_seconds", 61, "max_backoff_seconds: 61: input should be less than or equal to 60"),
        ("client_poll_seconds", -1, "client_poll_seconds: -1: input should be greater than or equal to 0"),
        ("state_file", 5, "state_file: 5: input is not a valid path for <class 'pathlib.Path'>"),
        ("borker_id", 1, "unknown setting borker_id"),
        ("cls", 1, "unknown setting cls"),
    ],
)
def test_wrong_value_is_named(field: str, value: object, message: str) -> None:
    """Which field, which value, and what is wrong with it."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AgentSettings(**{**NEEDED, field: value})


def test_name_of_256_characters_is_too_long() -> None:
    """The limit is in the message."""
    with pytest.raises(ValueError, match=r"broker_name: 'xxx.*: must be 1 to 255 printable characters"):
        AgentSettings(**{**NEEDED, "broker_name": "x" * 256})


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """Whoever corrects a file does not do it one error at a time."""
    wrong: dict[str, Any] = {"broker_name": "", "broker_id": -1, "colour": "red"}
    message = (
        "missing setting cluster_name; "
        "broker_name: '': must be 1 to 255 printable characters without blanks; "
        "missing setting broker_addr; "
        "broker_id: -1: input should be greater than or equal to 0; "
        "unknown setting colour"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AgentSettings(**wrong)


def test_settings_do_not_change() -> None:
    """What was checked stays as it was."""
    settings = AgentSettings(**NEEDED)

    with pytest.raises(ValidationError, match="frozen"):
        settings.broker_id = -1
