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


def test_the_examples_are_accepted() -> None:
    """Each name is a setting's, each value is in its range, and the side-car starts with its file as it is."""
    settings = environment(UNITS / "namesrv.env")
    assert {name.removeprefix("NAMESRV_").lower() for name in settings} <= set(Settings.model_fields)

    daemon = run("-m", "namesrv", "--check-config", **settings)
    agent = run("-m", "namesrv_broker_agent", "--config", str(UNITS / "agent.toml"), "--check-config")
    assert [(done.returncode, done.stderr) for done in (daemon, agent)] == [(0, "")] * 2
