"""The options in the systemd units exist."""

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

    assert set() == unknown_flags(flags, "-m", MODULES[path.stem])


def test_example_settings_are_valid() -> None:
    """Each name and value is valid, and the side-car accepts its file unchanged."""
    settings = environment(UNITS / "namesrv.env")
    assert {name.removeprefix("NAMESRV_").lower() for name in settings} <= set(Settings.model_fields)

    daemon = run("-m", "namesrv", "--check-config", **settings)
    agent = run("-m", "namesrv_broker_agent", "--config", str(UNITS / "agent.toml"), "--check-config")
    assert [(done.returncode, done.stderr) for done in (daemon, agent)] == [(0, "")] * 2
