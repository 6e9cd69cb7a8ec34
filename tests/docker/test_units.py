"""The options in the systemd units exist."""

import configparser
import shlex
from pathlib import Path

import pytest

from namesrv.cli import main as namesrv
from namesrv.settings.model import Settings
from namesrv_broker_agent.cli import main as broker_agent
from namesrv_console.cli import main as console
from namesrv_spark_jobs.command.cli import main as staleness
from tests.docker.commands import run, unknown_flags

UNITS = Path(__file__).parents[2] / "docker" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
PROGRAMS = {
    "namesrv": namesrv,
    "namesrv-broker-agent": broker_agent,
    "namesrv-console": console,
    "namesrv-staleness": staleness,
}


def unit(path: Path) -> configparser.ConfigParser:
    """A unit file; of a duplicate key the last value counts."""
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have capitals
    found.read(path, encoding="utf-8")
    return found


def environment(path: Path) -> dict[str, str]:
    """Variables of an EnvironmentFile."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_unit_flags_are_valid(path: Path) -> None:
    """An unknown flag would end the service at its start."""
    program, *flags = shlex.split(unit(path)["Service"]["ExecStart"])
    assert program == f"/opt/namesrv/bin/{path.stem}"

    assert unknown_flags(flags, PROGRAMS[path.stem]) == set()


def test_example_settings_are_valid() -> None:
    """Each name and value is valid, and the side-car accepts its file unchanged."""
    settings = environment(UNITS / "namesrv.env")
    assert {name.removeprefix("NAMESRV_").lower() for name in settings} <= set(Settings.model_fields)

    daemon = run(namesrv, "--check-config", environ=settings)
    agent = run(broker_agent, "--config", str(UNITS / "agent.toml"), "--check-config")
    assert [(done.code, done.err) for done in (daemon, agent)] == [(0, "")] * 2
