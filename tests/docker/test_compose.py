"""Flags and settings of compose.yml are valid."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.memory_broker import main as memory_broker
from namesrv.cli import main as namesrv
from namesrv.settings.model import Settings
from namesrv_remoting.address_views import BrokerIdentity, Viewer, parse_address_views
from namesrv_spark_jobs.command.cli import main as staleness
from tests.docker.commands import run, unknown_flags

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# As with HOST_ADDRESS=192.0.2.1.
REACH: dict[str, dict[str, Any]] = yaml.safe_load(
    (DOCKER / "compose.reach.yml").read_text(encoding="utf-8").replace("${HOST_ADDRESS:-127.0.0.1}", "192.0.2.1")
)["services"]
NAMESERVERS = ("namesrv-1", "namesrv-2", "namesrv-3")
BROKERS = ("broker-a", "broker-a-slave", "broker-b", "broker-b-slave")


@pytest.mark.parametrize("name", NAMESERVERS)
def test_nameserver_settings_are_valid(name: str) -> None:
    """An unknown variable would be ignored, and a wrong value refused at the start."""
    environ = SERVICES[name]["environment"]

    assert {variable.removeprefix("NAMESRV_").lower() for variable in environ} <= set(Settings.model_fields)
    done = run(namesrv, "--check-config", environ=environ)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("name", NAMESERVERS)
def test_memory_limit_exceeds_the_budget_of_the_server(name: str) -> None:
    """A server whose budget is used up refuses further frames; the limit must not kill it before."""
    limit_mib = int(SERVICES[name]["mem_limit"].removesuffix("m"))

    assert limit_mib - Settings(data_dir=Path()).max_memory_bytes / 2**20 >= 256


def test_brokers_are_published_where_the_outside_view_shows_them() -> None:
    """Each broker has its own port of the host; the NameServers' published port is that of the view's listener."""
    for name in NAMESERVERS:
        environ = REACH[name]["environment"]
        (view,) = parse_address_views(environ["VIEWS"]).views
        settings = Settings(data_dir=Path(), listeners=environ["NAMESRV_LISTENERS"])
        assert view.is_for(Viewer("192.0.2.9", listener=next(iter(settings.further_listeners))))
        (published,) = REACH[name]["ports"]
        assert published.endswith(f":{settings.further_listeners['outside']}")
        for broker_name in BROKERS:
            command = dict(pairwise(SERVICES[broker_name]["command"]))
            broker = BrokerIdentity(command["--cluster"], command["--name"], int(command["--id"]))
            registered = f"{command['--advertise']}:{command['--port']}"
            assert [f"{view.address(broker, registered, {})}:{command['--port']}"] == REACH[broker_name]["ports"]


def test_nameserver_starts_with_the_views_that_it_writes(tmp_path: Path) -> None:
    """Compose refuses a config with variables for a read-only service; the entrypoint writes the file instead."""
    for name in NAMESERVERS:
        assert (SERVICES[name]["read_only"], "configs" in REACH[name]) == (True, False)
        assert REACH[name]["entrypoint"] == REACH[NAMESERVERS[0]]["entrypoint"]
        assert REACH[name]["environment"] == REACH[NAMESERVERS[0]]["environment"]
    environ, written = REACH[NAMESERVERS[0]]["environment"], tmp_path / "views.toml"
    shell, option, script = REACH[NAMESERVERS[0]]["entrypoint"]
    script = script.replace(environ["NAMESRV_ADDRESS_VIEWS"], str(written))
    known = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "NAMESRV_ADDRESS_VIEWS": str(written)}

    subprocess.run((shell, option, f"{script} --check-config"), env={**environ, **known}, cwd=tmp_path, check=True)

    assert written.read_text(encoding="utf-8").strip() == environ["VIEWS"].strip()


@pytest.mark.parametrize("name", BROKERS)
def test_broker_flags_are_valid(name: str) -> None:
    """The broker's address is its name in the containers' network."""
    command = SERVICES[name]["command"]

    assert unknown_flags(command, memory_broker, command[0]) == set()
    assert name in dict(pairwise(command))["--advertise"]
    assert ("--port", "10911") in set(pairwise(command))
    assert "10911" in str(SERVICES[name]["healthcheck"]["test"])


@pytest.mark.parametrize(("name", "verb"), [("producer", "produce"), ("consumer", "consume")])
def test_client_flags_are_valid(name: str, verb: str) -> None:
    """Clients produce to and consume from the brokers' topic."""
    (script,) = SERVICES[name]["command"]

    assert f"/memory_broker.py {verb} --topic orders" in script
    assert unknown_flags(re.findall(r"--[a-z-]+", script.partition(verb)[2]), memory_broker, verb) == set()


def test_report_flags_and_logs_are_valid() -> None:
    """The driver and each worker mount the same files at the same paths."""
    command = SERVICES["report"]["command"]
    inputs = command[: command.index("--out")]

    assert unknown_flags(command, staleness) == set()
    assert [f"/logs/{name}/heartbeats" for name in NAMESERVERS] == inputs
    for name in NAMESERVERS:
        assert f"{name}-data:/logs/{name}:ro" in SERVICES["report"]["volumes"]
        assert f"{name}-data:/var/lib/namesrv" in SERVICES[name]["volumes"]
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert SERVICES[worker]["volumes"] == SERVICES["report"]["volumes"]
