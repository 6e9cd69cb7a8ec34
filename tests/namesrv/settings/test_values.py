"""Defaults of the data directory and the server's name."""

import socket
from pathlib import Path

import pytest

from namesrv.settings.values import (
    checked_endpoint,
    checked_path,
    default_data_dir,
    default_nameserver_name,
    endpoint_parts,
)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/mq"}, "/home/mq/.local/state/namesrv"),
        ({"HOME": "/home/mq", "XDG_STATE_HOME": "/var/state"}, "/var/state/namesrv"),
        ({"HOME": "/home/mq", "XDG_STATE_HOME": ""}, "/home/mq/.local/state/namesrv"),
        ({"HOME": "/home/mq", "XDG_STATE_HOME": "relative"}, "/home/mq/.local/state/namesrv"),
        ({"HOME": "/root"}, "/root/.local/state/namesrv"),
    ],
)
def test_data_dir_follows_the_xdg_rule(environ: dict[str, str], expected: str) -> None:
    """State goes to XDG_STATE_HOME if that is absolute, else below the home, for root as for others."""
    assert Path(expected) == default_data_dir(environ)


def test_data_dir_of_a_user_without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user has no home anywhere, and the daemon starts all the same."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)

    assert Path("/var/lib/namesrv") == default_data_dir({})


@pytest.mark.parametrize(
    ("host", "name"),
    [("ns1.example.org", "ns1.example.org"), ("-ns 1", "ns-1"), ("é", "namesrv"), ("a" * 70, "a" * 64)],
)
def test_nameserver_name_is_the_host_name_made_fit(monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    """What a file name cannot carry is replaced, whatever the host is called."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    assert name == default_nameserver_name()


def test_path_has_its_home_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ~ that no shell has resolved, as in a file, is the home."""
    monkeypatch.setenv("HOME", "/home/mq")

    assert Path("/home/mq/state") == checked_path(Path("~/state"))


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "a\0b"])
def test_path_that_cannot_be_is_refused(path: str) -> None:
    """The home of an unknown user and a NUL are found when settings are read, not when a file is opened."""
    with pytest.raises(ValueError, match=r"is not a path|home directory of an unknown user"):
        checked_path(Path(path))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", None),
        ("127.0.0.1:9877", ("127.0.0.1", 9877)),
        ("[::1]:9877", ("::1", 9877)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        ("localhost:0", ("localhost", 0)),
        ("ns-1.example.org:65535", ("ns-1.example.org", 65535)),
    ],
)
def test_endpoint_is_an_address_and_a_port(text: str, parts: tuple[str, int] | None) -> None:
    """Of both families, or a host name; nothing means none."""
    assert text == checked_endpoint(text)
    assert parts == endpoint_parts(text)


@pytest.mark.parametrize(
    "text",
    [
        *("9877", ":9877", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1"),
        *("::1:9877", "[127.0.0.1]:9877", "[::1]", "[::1:9877", "::1]:9877", "300.0.0.1:1", "a b:1", "1.1.1.1:1\n"),
        *("127.0.0.1:9877 ", "127.0.0.1:\u0661", "127.0.0.1:1,127.0.0.2:1"),
    ],
)
def test_endpoint_refuses_what_cannot_be_bound(text: str) -> None:
    """A port or a host alone, an IPv6 address without brackets, a wrong number."""
    with pytest.raises(
        ValueError, match=r"^is not a valid address and port, for example 127\.0\.0\.1:9877 or \[::1\]:9877$"
    ):
        checked_endpoint(text)
