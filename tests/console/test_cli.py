"""The command `namesrv-console`, as a process."""

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest

from namesrv_console.cli import main
from tests.support.ctl import refusing_address
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.permissions import unprivileged
from tests.support.printing_process import PatternProcess

COMMAND = (sys.executable, "-m", "namesrv_console", "--listen", "127.0.0.1:0")


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_url_serves_and_ends(ended_by: signal.Signals) -> None:
    """The command prints one URL, and reports that no server can be reached; either signal ends it with code 0."""
    with refusing_address() as address, PatternProcess([*COMMAND, "--server", address]) as console:
        line = console.wait_for("trying again")
        url = console.wait_for(r"^namesrv-console: http://127\.0\.0\.1:\d+/$").removeprefix("namesrv-console: ")
        page = httpx2.get(url, timeout=GUARD_SECONDS).text
        console.send_signal(ended_by)
        assert console.wait() == 0

    assert address in page
    assert "unreachable" in page
    # The reason may be a message of the operating system.
    assert line.startswith(f"namesrv-console: no connection to {address}: ")
    assert line.endswith("; trying again every second")
    assert line.count(address) == 1


def test_missing_directories_are_warnings(tmp_path: Path) -> None:
    """A mistyped directory is named; the console starts, since a server may make the directory later."""
    logs, audit = tmp_path / "nologs", tmp_path / "noaudit"
    words = ("--server", "127.0.0.1:1", "--logs", str(logs), "--logs", str(tmp_path), "--audit", str(audit))
    with PatternProcess([*COMMAND, *words]) as console:
        console.wait_for(r"^namesrv-console: http://")
        warnings = console.lines_matching("warning: ")

    assert warnings == [
        f"namesrv-console: warning: --logs {logs}: no such directory",
        f"namesrv-console: warning: --audit {audit}: no such directory",
    ]


@pytest.mark.parametrize(("closed", "mode"), [("", 0), ("logs", 0), ("logs", 0o444), ("logs", 0o111)])
def test_directory_without_permission_is_not_missing(
    closed: str, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory that the console may not list or enter, or below such a one, is named as such, not as mistyped."""
    # Other users may not enter the directories of pytest.
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        logs = Path(name, "logs")
        logs.mkdir()
        words = ["--listen=192.0.2.1:1", "--trusted-proxy=::1", "--public-url=http://x", "--logs", str(logs)]
        # The modules are imported with the first run, and `nobody` may be unable to read them.
        assert main(words) == 2
        assert "warning: --logs" not in capsys.readouterr().err
        Path(name, closed).chmod(mode)
        with unprivileged():
            main(words)
        Path(name, closed).chmod(0o755)

    assert f"warning: --logs {logs}: permission denied\n" in capsys.readouterr().err


# Runs the command, and sends it a signal as soon as its URL is written.
_ENDED_AT_ONCE = """
import os, sys
from namesrv_console.cli import main

class Output:
    def __getattr__(self, name):
        return getattr(sys.__stdout__, name)

    def write(self, text):
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        os.kill(os.getpid(), int(sys.argv[1]))

sys.stdout = Output()
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGINT])
def test_signal_right_after_the_url_ends_it(ended_by: signal.Signals) -> None:
    """A program that has read the URL may end the console at once: the exit code is 0."""
    words = ("-c", _ENDED_AT_ONCE, str(int(ended_by)), "--listen=127.0.0.1:0", "--server=127.0.0.1:1")
    with PatternProcess([sys.executable, *words]) as console:
        code = console.wait()

    assert (code, console.lines_matching("Traceback")) == (0, [])
    assert console.lines[0].startswith("namesrv-console: http://127.0.0.1:")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--server", "ns1:x"), "--server: address 'ns1:x' is not host:port"),
        (("--server", ""), "--server: no addresses"),
        (("--listen", "9878"), "--listen: address '9878' is not host:port"),
        (
            ("--listen=192.0.2.1:9878", "--trusted-proxy=10.0.0.0/8", "--public-url=http://x"),
            "cannot listen on 192.0.2.1:9878: cannot assign requested address\n",
        ),
        (("--tls-ca-file", "ca.pem"), "tls_ca_file is set, but tls is not"),
    ],
)
def test_wrong_usage_is_an_error(arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line with the value, and the console does not start."""
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_wrong_server_of_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the variable that the user did not type."""
    monkeypatch.setenv("NAMESRV_ADDR", "ns1:x")

    assert main([]) == 2
    assert "NAMESRV_ADDR: address 'ns1:x' is not host:port" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--logs", "--audit"])
def test_empty_directory_is_not_the_working_directory(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable of a script must not make the console search whatever is there."""
    with pytest.raises(SystemExit) as ended:
        main([option, ""])

    assert ended.value.code == 2
    assert f"argument {option}: is empty" in capsys.readouterr().err
