"""The command starts, explains itself, and ends with the right code."""

import os
import subprocess
import sys

import pytest

from namesrv_client.ctl import app, cli
from namesrv_client.ctl.commands import mqadmin
from tests.support.ctl import COMMAND, nobody, run

COMMANDS = [
    ["status"], ["brokers"], ["clusters"], ["topics"], ["route"], ["connections"], ["events"], ["watch"], ["explain"],
    ["diff"], ["bench"], ["wipe-write-perm"], ["add-write-perm"], ["delete-topic"], ["completion"],
    ["kv"], ["kv", "get"], ["kv", "put"], ["kv", "delete"], ["kv", "list"],
    ["config"], ["config", "show"], ["config", "set"],
]  # fmt: skip
MQADMINS = [
    "clusterList", "topicList", "topicRoute", "topicClusterList", "wipeWritePerm", "addWritePerm", "deleteTopic",
    "updateKvConfig", "deleteKvConfig", "getNamesrvConfig", "updateNamesrvConfig", "updateOrderConf",
]  # fmt: skip


def process(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it as a process of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "COLUMNS")}
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, check=False, env={**kept, **env})


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_explains_itself(command: list[str]) -> None:
    """With --help and -h, with its common options, in lines that end where the terminal does."""
    shown = run(*command, "--help", env={"COLUMNS": "80"})

    assert (0, "") == (shown.code, shown.err)
    assert f"Usage: namesrvctl {' '.join(command)} " in shown.out
    assert ("--timeout" in shown.out) == (command not in (["kv"], ["config"]))
    assert max(len(line) for line in shown.lines) <= 80
    assert shown == run(*command, "-h", env={"COLUMNS": "80"})


def test_root_lists_all_commands_but_mqadmins() -> None:
    """Those are for fingers that know them."""
    shown = run("--help", env={"COLUMNS": "120"})

    for command in COMMANDS:
        assert f"│ {command[0]} " in shown.out
    for name in MQADMINS:
        assert name not in shown.out
        assert 0 == run(name, "--help").code
    assert MQADMINS == list(mqadmin.COMMANDS)
    assert {" ".join(words) for words in COMMANDS} == {*app._COMMANDS, "kv", "config"}


@pytest.mark.parametrize("args", [(), ("kv",), ("nope",), ("brokers", "--nope"), ("route",), ("topics", "-o", "xml")])
def test_wrong_usage_is_two(args: tuple[str, ...]) -> None:
    """And nothing is asked of anybody."""
    assert 2 == run(*args).code


def test_bytes_that_are_no_text_are_wrong_usage() -> None:
    """No server could be sent them."""
    refused = run("route", "a\udcff")

    assert (2, "") == (refused.code, refused.out)
    assert r"'a\udcff' is not valid UTF-8" in refused.err


def test_process_ends_with_the_same_codes() -> None:
    """Help is 0, wrong usage and nobody there 2; no traceback."""
    with nobody() as absent:
        unreachable = process("brokers", NAMESRV_ADDR=absent)
    wrong = process("nope")

    assert (2, "") == (unreachable.returncode, unreachable.stdout)
    assert unreachable.stderr.startswith(f"namesrvctl: no connection to {absent}: ")
    assert (2, "") == (wrong.returncode, wrong.stdout)
    assert "Traceback" not in wrong.stderr + unreachable.stderr
    assert 0 == process("--help").returncode


def test_without_its_packages_it_says_what_to_install() -> None:
    """The command is installed without the extra, too."""
    script = "import sys; sys.modules['typer'] = None; from namesrv_client.ctl.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (2, "") == (done.returncode, done.stdout)
    assert "namesrvctl: typer is not installed; pip install 'namesrv[ctl]' brings it\n" == done.stderr


def test_bug_is_seventy_with_a_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """1 would say that the answer is no."""

    def bug(**_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(app, "app", bug)

    assert 70 == cli.main(["status"])
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err


def test_arguments_may_be_given() -> None:
    """As a script does that has them already."""
    assert (0, 2) == (cli.main(["--help"]), cli.main(["nope"]))


def test_other_encodings_get_what_they_can_show() -> None:
    """A broken terminal is no reason to fail."""
    with nobody() as absent:
        done = process("kv", "get", "ü", "k", "-s", absent, PYTHONIOENCODING="ascii")

    assert 2 == done.returncode
    assert done.stderr.isascii()
