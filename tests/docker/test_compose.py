"""compose.yml names only what exists: flags, settings, services, ports, volumes."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from namesrv.settings.model import Settings
from tests.docker.commands import run, unknown_flags

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NAMESERVERS = ("namesrv-1", "namesrv-2", "namesrv-3")
BROKERS = ("broker-a", "broker-a-slave", "broker-b", "broker-b-slave")
EXAMPLE = ROOT / "demo" / "memory_broker.py"


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_closed(name: str) -> None:
    """Nothing is writable but volumes and /tmp, no right is left, and no container can take the machine.

    `service_healthy` of a service without a health check would wait for ever.
    """
    service = SERVICES[name]
    closed = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}

    assert closed.items() <= service.items()
    assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
    assert "privileged" not in service
    for awaited, condition in service.get("depends_on", {}).items():
        assert condition == {"condition": "service_healthy"}
        assert "test" in SERVICES[awaited]["healthcheck"]


def test_every_volume_is_declared_and_used() -> None:
    """A misspelt volume would be a new, empty one."""
    mounted = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}

    assert set(COMPOSE["volumes"]) == {name for name in mounted if not name.startswith(".")}
    assert [] == [name for name in mounted if name.startswith(".") and not (DOCKER / name).exists()]


def test_ports_are_published_once_and_to_this_machine_only() -> None:
    """Nothing here has a password."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert [] == [port for port in published if not port.startswith("127.0.0.1:")]
    assert len(published) == len({port.split(":")[1] for port in published})


@pytest.mark.parametrize("name", NAMESERVERS)
def test_settings_of_a_nameserver_are_settings(name: str) -> None:
    """A misspelt variable would be ignored, a wrong value refused at the start."""
    environ = SERVICES[name]["environment"]

    assert {variable.removeprefix("NAMESRV_").lower() for variable in environ} <= set(Settings.model_fields)
    done = run("-m", "namesrv", "--check-config", **environ)
    assert (0, "") == (done.returncode, done.stderr)


def test_who_is_told_apart() -> None:
    """Servers share neither a data directory nor a name in the logs; each broker group has a master and a slave."""
    assert len(NAMESERVERS) == len({SERVICES[name]["environment"]["NAMESRV_NAMESERVER_NAME"] for name in NAMESERVERS})
    assert len(NAMESERVERS) == len({SERVICES[name]["volumes"][0] for name in NAMESERVERS})
    given = [dict(pairwise(SERVICES[name]["command"])) for name in BROKERS]
    assert [("broker-a", "0"), ("broker-a", "1"), ("broker-b", "0"), ("broker-b", "1")] == sorted(
        (flags["--name"], flags["--id"]) for flags in given
    )


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_started_with_flags_that_there_are(name: str) -> None:
    """And it gives itself out by the name that other containers reach it under."""
    command = SERVICES[name]["command"]

    assert set() == unknown_flags(command, str(EXAMPLE), command[0])
    assert name in dict(pairwise(command))["--advertise"]
    assert ("--port", "10911") in set(pairwise(command))
    assert "10911" in str(SERVICES[name]["healthcheck"]["test"])


@pytest.mark.parametrize(("name", "verb"), [("producer", "produce"), ("consumer", "consume")])
def test_clients_run_the_example_with_flags_that_there_are(name: str, verb: str) -> None:
    """They send and read the topic that the brokers have."""
    (script,) = SERVICES[name]["command"]

    assert f"/memory_broker.py {verb} --topic orders" in script
    assert set() == unknown_flags(re.findall(r"--[a-z-]+", script.partition(verb)[2]), str(EXAMPLE), verb)


@pytest.mark.parametrize("name", [*BROKERS, "producer", "consumer"])
def test_everybody_knows_all_three_nameservers(name: str) -> None:
    """By the names of their containers."""
    assert [f"{server}:9876" for server in NAMESERVERS] == SERVICES[name]["environment"]["NAMESRV_ADDR"].split(";")


def test_prometheus_asks_where_the_servers_answer() -> None:
    """One target for each server, on the port that it listens on."""
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    ports = {SERVICES[name]["environment"]["NAMESRV_HTTP_LISTEN"].rpartition(":")[2] for name in NAMESERVERS}

    assert ports == {"9877"}
    assert [f"{name}:9877" for name in NAMESERVERS] == job["static_configs"][0]["targets"]
    # the alerts go by the job's name
    assert job["job_name"] == "namesrv"
    assert [] == [name for name in config["rule_files"] if not (DOCKER / "prometheus" / name).exists()]


def test_grafana_is_given_the_dashboard_and_its_source() -> None:
    """What the provisioning names is mounted there."""
    provisioning = DOCKER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "namesrv.yml").read_text())["providers"]
    dashboard = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]

    assert source["url"] == "http://prometheus:9090"
    assert dashboard.startswith(provider["options"]["path"])
    assert f"./grafana/namesrv.json:{dashboard}:ro" in SERVICES["grafana"]["volumes"]


def test_the_report_is_run_with_flags_and_logs_that_there_are() -> None:
    """The driver and each worker see the same files under the same names."""
    command = SERVICES["report"]["command"]
    inputs = command[: command.index("--out")]

    assert set() == unknown_flags(command, "-m", "namesrv_spark_jobs")
    assert [f"/logs/{name}/heartbeats" for name in NAMESERVERS] == inputs
    for name in NAMESERVERS:
        assert f"{name}-data:/logs/{name}:ro" in SERVICES["report"]["volumes"]
        assert f"{name}-data:/var/lib/namesrv" in SERVICES[name]["volumes"]
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert SERVICES[worker]["volumes"] == SERVICES["report"]["volumes"]


def test_spark_meets_where_the_master_listens() -> None:
    """Workers and report go to the port that the master is given."""
    master = dict(pairwise(SERVICES["spark-master"]["command"]))
    url = f"spark://{master['--host']}:{master['--port']}"

    assert dict(pairwise(SERVICES["report"]["command"]))["--master"] == url
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert SERVICES[worker]["command"][-1] == url
