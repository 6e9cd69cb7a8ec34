"""The default directory of a program's files."""

from pathlib import Path

import pytest

from namesrv_runtime.state_dir import state_dir


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
def test_directory_follows_the_xdg_rule(environ: dict[str, str], expected: str) -> None:
    """State is in XDG_STATE_HOME if that is absolute, else below the home directory, also for root."""
    assert state_dir(environ, "namesrv") == Path(expected)


def test_directory_of_a_user_without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default for a user without a home directory, as in containers, is /var/lib/namesrv."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)

    assert state_dir({}, "namesrv") == Path("/var/lib/namesrv")
