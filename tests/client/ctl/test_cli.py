"""namesrvctl as a process: help, exit codes, completion."""

import inspect
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from namesrv_client.ctl import app, cli
from tests.support.ctl import COMMAND, refusing_address, run


def process(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run namesrvctl as a process of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "COLUMNS")}
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, check=False, env={**kept, **env})


@pytest.mark.parametrize(("target", "summary"), app.COMMANDS.values())
def test_command_list_repeats_each_commands_summary(target: str, summary: str) -> None:
    """The list repeats the summaries so that it imports no command."""
    text = inspect.getdoc(app.function_of(target)) or ""

    assert " ".join(text.partition("\n\n")[0].split()) == summary


@pytest.mark.parametrize(
    ("args", "spared"),
    [
        (["--help"], {"asyncio", "namesrv_remoting"}),
        (["status", "--help"], {"namesrv_client.client", "namesrv_client.ctl.commands.bench"}),
    ],
)
def test_help_imports_only_what_it_needs(args: list[str], spared: set[str]) -> None:
    """Help imports no command, and a command neither the other ones nor the client library."""
    script = f"import sys; from namesrv_client.ctl.cli import main; main({args!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert spared & set(done.stdout.splitlines()[-1].split()) == set()


def test_help_is_not_cut_off_in_a_terminal_of_80_columns() -> None:
    """A word that is longer than its column, such as the name of a variable, would end in dots."""
    assert "…" not in run("--help", env={"COLUMNS": "80"}).out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        *[(("config", "set", text, "--yes"), "not of the form KEY=VALUE") for text in ("key", "=true", " =true")],
        # --watch is for commands that only read
        (("wipe-write-perm", "b", "--watch", "1s", "--yes"), "cannot be repeated"),
        (("watch", "T", "--watch", "1s"), "cannot be repeated"),
        *[((name, "T", ""), "the name of a topic is empty") for name in ("route", "watch")],
        *[((name, ""), "the name of a topic is empty") for name in ("explain", "history", "delete-topic")],
        (("topicRoute", "-t", ""), "the name of a topic is empty"),
        # a server would delete the topic from all clusters
        (("delete-topic", "T", "--cluster", "", "--yes"), "the name of a cluster is empty"),
        (("wipe-write-perm", "", "--yes"), "the name of a broker is empty"),
        *[((name, "--name", ""), "the name of a broker is empty") for name in ("brokers", "top")],
        (("events", "--since", str(2**64)), "Input should be less than or equal to 18446744073709551615"),
        (("topics", "-o", "xml"), "Invalid value for '--output' / '-o': 'xml' is not one of"),
        (("route", "a\udcff"), r"'a\udcff' is not valid UTF-8"),
        # a misspelt type would match nothing for ever
        (
            ("events", "--type", "evicted"),
            "unknown value 'evicted' (did you mean evict?): use register, unregister, evict",
        ),
        # a mistyped file is no problem of the servers
        (("--tls", "--tls-ca-file", "absent.pem", "status"), "absent.pem: no such file or directory"),
        (("top",), "without --once it needs a terminal"),
        (("diff",), "at least two servers"),
        (("migrate", "check", "--from", "a", "--to", "a"), "a:9876 is also in --from"),
        # a longer or larger load
        (("bench", "--seconds", "61"), "Input should be less than or equal to 60"),
        (("bench", "--connections", "257"), "Input should be less than or equal to 256"),
        (("updateOrderConf", "-m", "put", "-t", "T"), "required with --method put"),
        # -s is the namespace in some mqadmin commands, which leaves --server
        (("--server", "127.0.0.1:1", "topicList", "--timeout", "1s"), "no connection to 127.0.0.1:1"),
    ],
)
def test_wrong_usage(command: Sequence[str], message: str) -> None:
    """Wrong usage exits with 2 before any request is sent."""
    refused = run(*command, env={"COLUMNS": "200"})

    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err


def test_mqadmin_command_that_is_not_accepted_has_no_similar_command() -> None:
    """The message does not propose `delete-topic` for `updateTopic`."""
    done = process("updateTopic", "-t", "T", "-c", "cluster-1", COLUMNS="200")

    assert done.returncode == 2
    assert "updateTopic is not among the commands of mqadmin that namesrvctl accepts, use mqadmin itself" in done.stderr
    assert "Did you mean 'brokers'?" in process("broker").stderr


def test_unreachable_server_exits_with_2() -> None:
    """An unreachable server exits with 2 without a traceback, also on a terminal that cannot show a character."""
    with refusing_address() as absent:
        unreachable = process("kv", "get", "ü", "k", NAMESRV_ADDR=absent, PYTHONIOENCODING="ascii")

    assert (unreachable.returncode, unreachable.stdout) == (2, "")
    assert unreachable.stderr.startswith(f"namesrvctl: no connection to {absent}: ")
    assert "Traceback" not in unreachable.stderr
    assert unreachable.stderr.isascii()


@pytest.mark.parametrize(("missing", "args"), [("typer", []), ("yaml", ["-s", "127.0.0.1:1", "status", "-o", "yaml"])])
def test_missing_package_is_reported_with_its_remedy(missing: str, args: list[str]) -> None:
    """The output is one line on standard error."""
    script = f"import sys; sys.modules[{missing!r}] = None; from namesrv_client.ctl.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    remedy = "in a clone make setup brings it, elsewhere pip install -r namesrv-ctl.txt of make dist"
    assert done.stderr == f"namesrvctl: {missing} is not installed; {remedy}\n"


def test_bug_exits_with_70_and_a_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug never exits with 1, which means a negative result."""
    assert (cli.main(["--help"]), cli.main(["nope"])) == (0, 2)

    def bug(**_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(app, "app", bug)
    assert cli.main(["status"]) == 70
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shell", "begin"),
    [
        ("bash", "_namesrvctl_completion() {"),
        ("zsh", "#compdef namesrvctl"),
        ("fish", "complete --command namesrvctl"),
        ("powershell", "Import-Module PSReadLine"),
    ],
)
def test_completion_script_is_printed_for_each_shell(shell: str, begin: str) -> None:
    """The script is for the named shell or for $SHELL; an unknown shell is wrong usage."""
    named = run("completion", shell)

    assert (named.code, named.err, named.out[: len(begin)]) == (0, "", begin)
    assert named == run("completion", env={"SHELL": f"/usr/bin/{shell}"})
    for refused in (run("completion", "tcsh"), run("completion", env={"SHELL": "/bin/tcsh"})):
        assert (refused.code, refused.out) == (2, "")
    assert "unknown shell 'tcsh' (one of bash, zsh, fish," in " ".join(refused.err.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """Bash completes commands and options, without hidden commands."""
    command = tmp_path / "namesrvctl"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    script = run("completion", "bash").out
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    def completed(*words: str) -> list[str]:
        completion = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _namesrvctl_completion namesrvctl"
        line = f'{script}\n{completion}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env=env).stdout.split()

    assert completed("namesrvctl", "c") == ["clusters", "connections", "completion", "context", "config"]
    assert completed("namesrvctl", "topicList", "--na") == ["--namesrvAddr"]
