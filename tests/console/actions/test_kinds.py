"""The shell command for an action."""

import subprocess
from collections.abc import Sequence

import pytest

from namesrv_console.actions.kinds import ACTIONS, command
from tests.support.ctl import run

HOSTILE = [
    "; rm -rf / $(touch x) `id` a'b\"c\\ 名",
    "\x1b[2J\x1b]0;x\x07\u202egnp.exe\na\tb'c\"d\\ 名",
]


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("wipe-write-perm", ["broker-a"], ["wipe-write-perm", "broker-a"]),
        ("add-write-perm", ["broker-a"], ["add-write-perm", "broker-a"]),
        ("delete-topic", ["T 1"], ["delete-topic", "T 1"]),
        ("kv-put", ["N", "k", ""], ["kv", "put", "N", "k", ""]),
        ("kv-delete", ["N", "-k"], ["kv", "delete", "--", "N", "-k"]),
        ("config-set", ["clusterTest", "true"], ["config", "set", "clusterTest=true"]),
        ("delete-topic", ["-y"], ["delete-topic", "--", "-y"]),
        *[("delete-topic", [it], ["delete-topic", it]) for it in HOSTILE],
    ],
)
def test_command_survives_a_shell(name: str, values: Sequence[str], words: Sequence[str]) -> None:
    """Every name is one word, no part of it is executed, and no control character reaches the terminal."""
    action = ACTIONS[name]
    line = command(action, ["a:9876", "[::1]:9876"], dict(zip(action.fields, values, strict=True)), options=["--tls"])

    assert line.isprintable()
    script = f"namesrvctl() {{ printf '%s\\0' \"$@\"; }}; {line}"
    read = subprocess.run(["bash", "-c", script], check=True, capture_output=True).stdout.decode().split("\0")[:-1]
    assert read == ["-s", "a:9876", "-s", "[::1]:9876", "--tls", *words]


def test_namesrvctl_has_these_commands() -> None:
    """`namesrvctl` accepts each command with the same number of arguments."""
    for action in ACTIONS.values():
        fields = dict.fromkeys(action.fields, "true") | {"key": "clusterTest"}
        words = command(action, ["127.0.0.1:1"], fields).split()[1:]
        # Without a terminal and --yes, namesrvctl changes nothing.
        assert "pass --yes to confirm" in (done := run(*words)).err or "127.0.0.1:1" in done.err
