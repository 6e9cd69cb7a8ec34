"""The settings model: ranges and refusals; the generated table in docs/operating.md has the numbers."""

import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from namesrv.settings.catalog import SETTINGS, Setting
from namesrv.settings.model import Settings, default_nameserver_name


def settings(**values: object) -> Settings:
    """Settings from values that may be wrong."""
    return Settings.model_validate(values)


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS.values() if setting.kind in {int, float}])
def test_every_number_has_a_range_that_includes_its_ends(setting: Setting) -> None:
    """Both ends of a range are allowed, and the next values beyond are refused."""
    assert setting.between is not None
    low, high = setting.between
    step = 1 if setting.kind is int else 0.001

    for end in (low, high):
        assert getattr(settings(**{setting.name: end}), setting.name) == end
    for beyond in (low - step, high + step):
        with pytest.raises(ValidationError):
            settings(**{setting.name: beyond})


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
    """Addresses of both families and host names are separated by commas and optional blanks."""
    assert settings(listen_host=text).listen_hosts == hosts


HOSTS = ["", ",", "::,", "127.0.0.1:9876", "300.1.1.1", "a b", "[::]", "::,::", "-a", "a\nb", "a..b", "a" * 64]
NAMES = ["", "../x", ".hidden", "a/b", "A" * 65, "a\n", "é"]
ENDPOINTS = [
    *("9877", ":9877", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1"),
    *("::1:9877", "[127.0.0.1]:9877", "[::1]", "[::1:9877", "::1]:9877", "300.0.0.1:1", "a b:1", "1.1.1.1:1\n"),
    *("127.0.0.1:9877 ", "127.0.0.1:\u0661", "127.0.0.1:1,127.0.0.2:1", "a..b:1"),
]
NUMBERS = [True, "", "abc", "nan", "inf", "1 2", None, [1]]
PATHS = ["~unknown-user/x", "a\0b"]
NO_HOST = "is empty|is not a valid address or host name|contains the same address twice"
NO_PATH = "is not a path|home directory of an unknown user"


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        *(("listen_port", value, "is (empty|not a number)|Input should be") for value in NUMBERS),
        *(("drain_seconds", value, "is (empty|not a number)|Input should be") for value in NUMBERS),
        *(("listen_host", value, NO_HOST) for value in HOSTS),
        *(("nameserver_name", value, "is empty|is not a valid name") for value in NAMES),
        *(("http_listen", value, r"is not a valid address and port, for example .* or \[::1\]") for value in ENDPOINTS),
        *(("name_servers_listen", value, "is not a valid address and port") for value in ENDPOINTS),
        *(
            ("name_servers", f"ns1:9876;{value}", "has no valid host and port in")
            for value in ENDPOINTS
            if value == value.strip()
        ),
        *(
            ("listeners", value, "has no valid name and port in")
            for value in ("9886", "outside", "outside=", "outside=65536", "outside=-1", "out side=1", "=1", "a=1,,b=2")
        ),
        *(("listeners", value, "contains a name twice") for value in ("a=1,a=2", "default=1")),
        ("name_servers", "ns1:9876;ns1:9876", "contains the same NameServer twice"),
        *(
            ("broker_metrics_target", value, "is not a valid host and port")
            for value in ("{host}", "{ho st}:1", "{host:1", "{name}:1", "{host.a}:1", "{host!r}:1", "{}:1", "a b:1")
        ),
        *(
            ("http_hosts", value, "is not a valid list of host names")
            for value in ("a,", "a b", "*a", "a:1", "http://a")
        ),
        *(("data_dir", value, NO_PATH) for value in PATHS),
        *(("heartbeat_log_dir", value, NO_PATH) for value in PATHS),
    ],
)
def test_invalid_values_are_refused(name: str, value: object, wrong: str) -> None:
    """A value that cannot be bound, opened or counted is refused, and no name leads to another directory."""
    with pytest.raises(ValidationError, match=wrong):
        settings(**{name: value})


@pytest.mark.parametrize(
    ("value", "path"),
    [("heartbeats", "/home/mq/state/heartbeats"), ("/logs", "/logs"), ("~/logs", "/home/mq/logs"), ("", None)],
)
def test_heartbeat_log_is_below_the_data_directory(
    monkeypatch: pytest.MonkeyPatch, value: str, path: str | None
) -> None:
    """A relative directory is below the data directory, ~ is the home directory, and an empty value is None."""
    monkeypatch.setenv("HOME", "/home/mq")

    found = settings(data_dir="~/state", heartbeat_log_dir=value).heartbeat_log_path

    assert found == (None if path is None else Path(path))


@pytest.mark.parametrize(
    ("host", "name"),
    [("ns1.example.org", "ns1.example.org"), ("-ns 1", "ns-1"), ("é", "namesrv"), ("a" * 70, "a" * 64)],
)
def test_default_nameserver_name_is_the_host_name(monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    """Characters that a file name cannot have are replaced, and the name is cut to 64."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    assert default_nameserver_name() == name
