"""Our commands in a shell: closed and full outputs, closed pipes, Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_clock import GUARD_SECONDS
from tests.support.notify_socket import NotifySocket

# each with a short output
COMMANDS = [["namesrv", "--help"], ["namesrvctl", "completion", "bash"], ["namesrv_broker_agent", "--help"]]
each_command = pytest.mark.parametrize(
    "command",
    # all begin and end in the same code
    [pytest.param(command, marks=[pytest.mark.slow] * (number > 0)) for number, command in enumerate(COMMANDS)],
    ids=[command[0] for command in COMMANDS],
)


def python(command: list[str], *options: str) -> list[str]:
    """Arguments that start a command as its installed script does."""
    function, *arguments = command
    return [sys.executable, *options, "-c", f"from namesrv_runtime.program import {function} as f; f()", *arguments]


def shell(command: list[str], redirection: str) -> tuple[int, str, str]:
    """Exit code, output and error output of a command in a shell."""
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *python(command)],
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@each_command
def test_failing_output(command: list[str]) -> None:
    """One line names the reason, with an exit code and without a traceback."""
    name = command[0].replace("_", "-")

    assert shell(command, ">/dev/full") == (1, "", f"{name}: standard output: no space left on device\n")
    assert shell(command, ">&-") == (1, "", f"{name}: standard output: bad file descriptor\n")


@each_command
def test_closed_pipe(command: list[str]) -> None:
    """Nothing is printed, and the exit code is SIGPIPE's."""
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(python(command), stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        assert process.communicate(timeout=GUARD_SECONDS)[1] == ""
    assert process.returncode == 141


@each_command
def test_other_streams_may_be_closed(command: list[str]) -> None:
    """Without standard input or standard error the output is the same."""
    _, answer, _ = shell(command, "")

    assert shell(command, "<&- 2>&-") == (0, answer, "")
    assert shell([command[0], "--nonsense"], "2>/dev/full") == (2, "", "")


def test_daemon_without_standard_streams(tmp_path: Path) -> None:
    """The loop's descriptors must not become standard ones, because libuv aborts when it closes one."""
    place = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", f"--data-dir={tmp_path}"]
    words = python(["namesrv", *place, "--drain-seconds=0"])
    with NotifySocket(tmp_path / "notify") as systemd:
        environment = os.environ | {"NOTIFY_SOCKET": systemd.address}
        with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words], env=environment) as process:
            systemd.receive_with("READY")
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0


# start of a command that reports its first import and waits
_WAITS = """
import sys

class Waits:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            sys.__stdout__.write("importing\\n")
            sys.__stdout__.flush()
            sys.stdin.read()

sys.meta_path.insert(0, Waits())
"""


@pytest.mark.parametrize("command", [["namesrv"], ["namesrvctl", "status"], ["namesrv_broker_agent"]])
def test_interrupt_while_it_imports(command: list[str], tmp_path: Path) -> None:
    """Ctrl-C at any time gives an exit code and no traceback."""
    environment = os.environ | {"NAMESRV_DATA_DIR": str(tmp_path)}
    interpreter, option, code, *arguments = python(command)
    waits = _WAITS.format(module="argparse" if command == ["namesrv"] else "asyncio")
    with subprocess.Popen(
        [interpreter, option, waits + code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=GUARD_SECONDS)
    assert (process.returncode, complaints) == (130, "")
