"""The settings themselves: defaults, ranges, and what each refuses."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from namesrv.settings.catalog import SETTINGS
from namesrv.settings.model import Settings

DEFAULTS = {
    "listen_host": "0.0.0.0",
    "listen_port": 9876,
    "http_listen": "127.0.0.1:9877",
    "proxy_protocol": "off",
    "scan_interval_seconds": 10.0,
    "broker_expiry_seconds": 120.0,
    "evict_on_disconnect": True,
    "notify_min_broker_id_changed": False,
    "support_acting_master": False,
    "wait_for_service_seconds": 45.0,
    "drain_seconds": 5.0,
    "order_message_enable": False,
    "return_order_topic_config_to_broker": True,
    "delete_topic_with_broker_registration": False,
    "enable_topic_list": True,
    "enable_all_topic_list": True,
    "max_topics_per_broker": 100000,
    "max_clusters": 1000,
    "max_brokers": 10000,
    "max_topics": 1000000,
    "max_routes": 4000000,
    "max_brokers_per_connection": 1000,
    "max_topics_per_connection": 200000,
    "max_frame_bytes": 16777216,
    "max_header_bytes": 65536,
    "max_inflated_bytes": 67108864,
    "max_inflate_ratio": 200,
    "first_frame_timeout_seconds": 10.0,
    "silent_timeout_seconds": 120.0,
    "whole_frame_timeout_seconds": 30.0,
    "max_connections": 10000,
    "reserved_broker_connections": 1000,
    "max_connections_per_ip": 1024,
    "max_watched_topics_per_connection": 100000,
    "max_watched_topics": 1000000,
    "max_in_flight_per_connection": 256,
    "write_buffer_bytes": 4194304,
    "idle_timeout_seconds": 600.0,
    "max_memory_bytes": 536870912,
    "tcp_user_timeout_seconds": 30.0,
    "kv_max_value_bytes": 16384,
    "kv_max_keys_per_namespace": 10000,
    "kv_max_namespaces": 256,
    "heartbeat_log_dir": "heartbeats",
    "heartbeat_log_keep_days": 14.0,
    "heartbeat_log_max_bytes": 2_147_483_648,
    "admin_enabled": False,
    "log_level": "info",
    "log_format": "auto",
}

RANGES = [
    ("listen_port", 0, 65535),
    ("scan_interval_seconds", 0.1, 3600),
    ("broker_expiry_seconds", 0.1, 86400),
    ("wait_for_service_seconds", 0, 3600),
    ("drain_seconds", 0, 600),
    ("max_topics_per_broker", 1, 10_000_000),
    ("max_clusters", 1, 100_000),
    ("max_brokers", 1, 1_000_000),
    ("max_topics", 1, 100_000_000),
    ("max_routes", 1, 1_000_000_000),
    ("max_brokers_per_connection", 1, 1_000_000),
    ("max_topics_per_connection", 1, 100_000_000),
    ("max_frame_bytes", 65536, 67108864),
    ("max_header_bytes", 1024, 16777215),
    ("max_inflated_bytes", 65536, 1073741824),
    ("max_inflate_ratio", 2, 1032),
    ("first_frame_timeout_seconds", 0.1, 3600),
    ("silent_timeout_seconds", 1, 3600),
    ("whole_frame_timeout_seconds", 0.1, 3600),
    ("max_connections", 1, 1_000_000),
    ("reserved_broker_connections", 0, 1_000_000),
    ("max_connections_per_ip", 0, 1_000_000),
    ("max_watched_topics_per_connection", 1, 10_000_000),
    ("max_watched_topics", 1, 100_000_000),
    ("max_in_flight_per_connection", 1, 65535),
    ("write_buffer_bytes", 65536, 1073741824),
    ("idle_timeout_seconds", 0, 86400),
    ("max_memory_bytes", 67108864, 1 << 40),
    ("tcp_user_timeout_seconds", 0, 3600),
    ("kv_max_value_bytes", 1, 32768),
    ("kv_max_keys_per_namespace", 1, 1_000_000),
    ("kv_max_namespaces", 1, 100_000),
    ("heartbeat_log_keep_days", 0.01, 3650),
    ("heartbeat_log_max_bytes", 1_048_576, 1 << 50),
]


def settings(**values: object) -> Settings:
    """Settings of values that may be wrong."""
    return Settings.model_validate(values)


def test_defaults_are_the_documented_ones() -> None:
    """Every setting but the two that depend on the machine has the default of the manual."""
    assert DEFAULTS == Settings().model_dump(exclude={"data_dir", "nameserver_name"})


def test_environment_alone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model reads no environment by itself, so that no value is without an origin."""
    monkeypatch.setenv("NAMESRV_LISTEN_PORT", "1")

    assert Settings().listen_port == 9876


def test_settings_cannot_be_changed() -> None:
    """Settings are a value: changed ones are other ones."""
    with pytest.raises(ValidationError, match="frozen"):
        Settings().listen_port = 1


def test_unknown_setting_is_refused() -> None:
    """A misspelt name is an error, never a setting without effect."""
    with pytest.raises(ValidationError, match="listn_port"):
        settings(listn_port=1)


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_range_includes_its_ends_and_nothing_beyond(name: str, low: float, high: float) -> None:
    """The ends of each range are allowed, the next values are not."""
    step = 1 if isinstance(DEFAULTS[name], int) else 0.001

    assert low == getattr(settings(**{name: low}), name)
    assert high == getattr(settings(**{name: high}), name)
    for beyond in (low - step, high + step):
        with pytest.raises(ValidationError):
            settings(**{name: beyond})


def test_every_number_has_a_range() -> None:
    """No number is without bounds."""
    assert {name for name, _, _ in RANGES} == {
        name for name, setting in SETTINGS.items() if setting.kind in {int, float}
    }


@pytest.mark.parametrize("name", ["listen_port", "drain_seconds"])
@pytest.mark.parametrize("value", [True, "", "abc", "nan", "inf", "1 2", None, [1]])
def test_number_refuses_what_is_none(name: str, value: object) -> None:
    """Numbers take numbers and their text, not true, not infinity, not an empty text."""
    with pytest.raises(ValidationError):
        settings(**{name: value})


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("0.0.0.0", ("0.0.0.0",)),
        ("::", ("::",)),
        ("0.0.0.0, ::", ("0.0.0.0", "::")),
        ("fe80::1%eth0", ("fe80::1%eth0",)),
        ("name-server-1.example.org", ("name-server-1.example.org",)),
    ],
)
def test_listen_host_is_one_address_or_several(text: str, hosts: tuple[str, ...]) -> None:
    """Addresses of both families and host names are separated by commas, blanks around them do not count."""
    assert hosts == settings(listen_host=text).listen_hosts


@pytest.mark.parametrize("text", ["", ",", "::,", "127.0.0.1:9876", "300.1.1.1", "a b", "[::]", "::,::", "-a", "a\nb"])
def test_listen_host_refuses_what_cannot_be_bound(text: str) -> None:
    """A port, brackets, a wrong number or an address given twice is found before anything listens."""
    with pytest.raises(ValidationError):
        settings(listen_host=text)


@pytest.mark.parametrize("name", ["n", "ns-1.example_org", "A" * 64])
def test_nameserver_name_can_be_part_of_a_file_name(name: str) -> None:
    """Letters, digits, dots, dashes and underscores make a name."""
    assert name == settings(nameserver_name=name).nameserver_name


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "a/b", "A" * 65, "a\n", "é"])
def test_nameserver_name_refuses_what_a_file_name_cannot_be(name: str) -> None:
    """Nothing in the name can lead to another directory."""
    with pytest.raises(ValidationError):
        settings(nameserver_name=name)


@pytest.mark.parametrize("value", ["JSON", "Json", "json"])
def test_words_are_taken_in_any_case(value: str) -> None:
    """Apache's tools write levels and modes in capitals."""
    assert settings(log_format=value).log_format == "json"


@pytest.mark.parametrize("name", SETTINGS)
def test_consequence_is_a_sentence(name: str) -> None:
    """Each setting says what it does in whole sentences."""
    consequence = SETTINGS[name].consequence

    assert consequence[0].isupper()
    assert consequence.endswith(".")
    assert "  " not in consequence


@pytest.mark.parametrize(
    ("value", "path"),
    [("heartbeats", Path("/data/heartbeats")), ("/logs", Path("/logs")), ("", None)],
)
def test_the_heartbeat_log_is_below_the_data_directory(value: str, path: Path | None) -> None:
    """Unless it is told a place of its own, or switched off."""
    assert path == settings(data_dir="/data", heartbeat_log_dir=value).heartbeat_log_path
