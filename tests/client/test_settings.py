"""Validation of the client's settings."""

from typing import Any

import pytest

from namesrv_client import ClientSettings, RouteClient, SyncRouteClient


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"protocol": "http"}, "protocol"),
        ({"name_servers": "10.0.0.1"}, "10.0.0.1"),
        ({"poll_seconds": 0}, "poll_seconds"),
        ({"poll_seconds": float("nan")}, "poll_seconds"),
        ({"attempt_timeout_seconds": 5.0}, "attempt_timeout_seconds 5 is more than call_timeout_seconds 3"),
        ({"cache_ttl_seconds": -1}, "cache_ttl_seconds"),
        ({"fault_table": "6"}, "fault_table"),
        ({"probe": "ping"}, "probe"),
        ({"default_topic_queue_nums": 0}, "default_topic_queue_nums"),
        ({"poll_second": 30}, "poll_second"),
        # of an unset variable; Path("") is the current directory
        ({"snapshot_file": ""}, "snapshot_file: '': empty path"),
        # in every request for routes
        *(({"zone_name": name}, "zone_name") for name in ("zone-\ud800", "z" * 256)),
        *(({"default_topic": name}, "default_topic") for name in ("TBW\ud800", "t" * 391)),
        # part of file names
        *(({"client_name": name}, "client_name") for name in ("", "a/b", ".hidden", "x" * 65)),
    ],
)
def test_invalid_setting_is_named(values: dict[str, Any], message: str) -> None:
    """Settings are validated when they are made."""
    with pytest.raises(ValueError, match=message):
        ClientSettings(**values)


@pytest.mark.parametrize("client", [RouteClient, SyncRouteClient])
@pytest.mark.parametrize("settings", [None, 9876, b"127.0.0.1:9876", [9876]])
def test_value_in_place_of_settings_is_refused(client: Any, settings: object) -> None:
    """The error says what the client takes."""
    with pytest.raises(TypeError, match=r"^.* is neither ClientSettings nor an address or a list of addresses$"):
        client(settings)


def test_empty_list_of_servers_is_refused() -> None:
    """Only an empty string stands for the environment's list; an empty list is a mistake."""
    with pytest.raises(ValueError, match=r"^empty list of name servers$"):
        RouteClient([])
