"""The command `namesrv`: exit codes, output and errors."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from namesrv.cli import main
from tests.support.fake_clock import GUARD_SECONDS


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without settings of the daemon."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
    return kept | changes


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The finished process of the command."""
    return subprocess.run(
        [sys.executable, "-m", "namesrv", *argv],
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("NAMESRV_"):
            monkeypatch.delenv(name)


def test_help_works_with_a_broken_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    """Help is printed in spite of wrong settings."""
    assert main(["--help", "--config", "/nowhere", "--what"]) == 0
    assert capsys.readouterr().err == ""


def test_check_config(capsys: pytest.CaptureFixture[str]) -> None:
    """Doubtful settings have a warning on stderr and are valid."""
    assert main(["--check-config", "--listen-port=0"]) == 0
    assert capsys.readouterr() == ("configuration is valid\n", "")

    assert main(["--check-config", "--broker-expiry-seconds=5"]) == 0
    out, err = capsys.readouterr()
    assert out == "configuration is valid\n"
    assert err.startswith("namesrv: warning: broker-expiry-seconds 5 is less than the 30 s between two heartbeats")


@pytest.mark.parametrize("action", [[], ["--check-config"], ["--print-config"]])
def test_wrong_settings_exit_with_2(capsys: pytest.CaptureFixture[str], action: list[str]) -> None:
    """Wrong settings exit with 2 for any action, with one line each on stderr and an empty stdout."""
    assert main([*action, "--listen-port=70000", "--nonsense"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "namesrv: unknown flag --nonsense",
        "namesrv: listen-port: 70000 is not between 0 and 65535 (from flag --listen-port)",
    ]


def test_print_config_of_a_process(tmp_path: Path) -> None:
    """A real process prints each setting with its origin and exits with 0."""
    (tmp_path / "n.toml").write_text("max_connections = 5\n")
    (tmp_path / "n.properties").write_text("supportActingMaster=true\nlistnPort=1\n")

    done = run(
        "--print-config",
        f"--config={tmp_path}/n.toml",
        f"-c{tmp_path}/n.properties",
        "--drain-seconds=1",
        NAMESRV_LISTEN_PORT="1234",
    )

    assert done.returncode == 0
    assert f"namesrv: warning: file {tmp_path}/n.properties has unknown keys: listnPort" in done.stderr
    for line in [
        "drain_seconds = 1 # flag --drain-seconds",
        "listen_port = 1234 # environment NAMESRV_LISTEN_PORT",
        f"max_connections = 5 # file {tmp_path}/n.toml",
        f"support_acting_master = true # file {tmp_path}/n.properties, supportActingMaster",
        'log_level = "info" # default',
    ]:
        assert line in [" ".join(shown.split()) for shown in done.stdout.splitlines()]
    assert tomllib.loads(done.stdout)["listen_port"] == 1234


def test_undecodable_arguments_of_a_process() -> None:
    """Bytes that cannot be decoded are shown escaped."""
    done = subprocess.run(
        [sys.executable.encode(), b"-m", b"namesrv", b"--\xff"],
        env=environment(LC_ALL="C"),
        capture_output=True,
        timeout=GUARD_SECONDS,
        check=False,
    )

    assert (done.returncode, done.stderr) == (2, b'namesrv: unknown flag "--\\\\udcff"\n')


def test_settings_warnings_are_the_first_log_lines(tmp_path: Path) -> None:
    """The first line in the log of a daemon is the warning about its settings."""
    place = ["--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", f"--data-dir={tmp_path}"]
    with subprocess.Popen(
        [sys.executable, "-m", "namesrv", *place],
        env=environment(NAMESRV_BROKER_EXPIRY_SECONDS="5"),
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stderr is not None
        line = json.loads(daemon.stderr.readline())
        daemon.kill()

    assert (line["level"], line["event"]) == ("warning", "settings_warning")
    assert line["warning"].startswith("broker-expiry-seconds 5 is less than the 30 s")
