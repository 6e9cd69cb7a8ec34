"""The systemd units start our commands with options that exist."""

import configparser
import shlex
from pathlib import Path

import pytest

from namesrv.settings.model import Settings
from tests.docker.commands import run, unknown_flags

UNITS = Path(__file__).parents[2] / "docker" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
MODULES = {
    "namesrv": "namesrv",
    "namesrv-broker-agent": "namesrv_broker_agent",
    "namesrv-console": "namesrv_console",
    "namesrv-staleness": "namesrv_spark_jobs",
}


def unit(path: Path) -> configparser.ConfigParser:
    """A unit file; of a key that is there twice, the last."""
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # keys of systemd have capitals
    found.read(path, encoding="utf-8")
    return found


def environment(path: Path) -> dict[str, str]:
    """What an EnvironmentFile sets."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_with_flags_that_there_are(path: Path) -> None:
    """A flag that is none would end the service at its start."""
    program, *flags = shlex.split(unit(path)["Service"]["ExecStart"])
    assert program == f"/opt/namesrv/bin/{path.stem}"

    assert set() == unknown_flags(flags, "-m", MODULES[path.stem])


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_unit_has_no_rights(path: Path) -> None:
    """What systemd-analyze measures as a whole, by name: these three were left out by no accident."""
    service = unit(path)["Service"]

    assert ("", "yes", "strict") == (
        service["CapabilityBoundingSet"],
        service["NoNewPrivileges"],
        service["ProtectSystem"],
    )
    assert service["User"] == "namesrv"
    # Java and what draws charts write machine code while they run
    assert ("MemoryDenyWriteExecute" in service) == (path.stem in {"namesrv", "namesrv-broker-agent"})


def test_the_daemon_tells_systemd_and_is_told() -> None:
    """Ready and alive by notification, reloaded by SIGHUP, started again unless its settings are wrong."""
    service = unit(UNITS / "namesrv.service")["Service"]

    assert ("notify", "/bin/kill -HUP $MAINPID", "on-failure", "2") == (
        service["Type"],
        service["ExecReload"],
        service["Restart"],
        service["RestartPreventExitStatus"],
    )
    assert service["Environment"] == f"NAMESRV_DATA_DIR=/var/lib/{service['StateDirectory']}"
    # a descriptor for each connection, and some for files
    assert int(service["LimitNOFILE"]) > Settings.model_fields["max_connections"].default + 1000


def test_the_examples_are_accepted() -> None:
    """Each name is a setting's, each value is in its range, and the side-car starts with its file as it is."""
    settings = environment(UNITS / "namesrv.env")
    assert {name.removeprefix("NAMESRV_").lower() for name in settings} <= set(Settings.model_fields)

    daemon = run("-m", "namesrv", "--check-config", **settings)
    agent = run("-m", "namesrv_broker_agent", "--config", str(UNITS / "agent.toml"), "--check-config")
    assert [(0, "")] * 2 == [(done.returncode, done.stderr) for done in (daemon, agent)]


def test_the_console_has_what_it_reads_set() -> None:
    """Nothing is asked of systemd that neither the unit nor its file sets; both agree."""
    service = unit(UNITS / "namesrv-console.service")["Service"]
    settings = environment(UNITS / "console.env")

    assert {"NAMESRV_ADDR": "127.0.0.1:9876", "CONSOLE_OPTIONS": ""} == settings
    assert "$CONSOLE_OPTIONS" in shlex.split(service["ExecStart"])


def test_the_report_reads_what_the_daemon_writes() -> None:
    """The default of --heartbeat-log-dir below the daemon's state directory; the file repeats the unit's defaults."""
    service = unit(UNITS / "namesrv-staleness.service")["Service"]
    settings = environment(UNITS / "staleness.env")

    assert settings["STALENESS_INPUT"] == f"/var/lib/namesrv/{Settings.model_fields['heartbeat_log_dir'].default}"
    for name in settings:
        assert f"${name}" in shlex.split(service["ExecStart"])
