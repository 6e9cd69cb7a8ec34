"""Restarts, upgrades and a pulled cable as in docs/deploying.md, unnoticed by applications."""

from collections.abc import Callable
from typing import Any, Final

from tests.netns.deployment import BROKERS, NEW_SERVER, SERVERS, Application, Deployment

Deploy = Callable[..., Deployment]


KINDS: Final = {"app1": "poll", "app2": "watch"}


def run_everything(deployment: Deployment, *agent_settings: str) -> list[Application]:
    """Start servers, brokers and one application per kind; return the applications once they have complete routes."""
    deployment.start_servers()
    for name in BROKERS:
        deployment.start_broker(name, *agent_settings)
    until_whole(deployment)
    return [deployment.start_application(name, kind) for name, kind in KINDS.items()]


def until_whole(deployment: Deployment) -> None:
    """Return once all servers have all brokers."""
    deployment.until(f"namesrvctl -s '{deployment.name_servers}' brokers --name broker-b")
    deployment.until(f"namesrvctl -s '{deployment.name_servers}' diff")


def counted(application: Application) -> dict[str, Any]:
    """Results of an application, after checking that no pull failed and no route lacked a broker."""
    seen = application.end()
    assert (seen["failed"], seen["incomplete"]) == ([], [])
    return seen


def test_rolling_upgrade(deploy: Deploy) -> None:
    """All three servers are upgraded and restarted; no pull fails, no route lacks a broker, no broker is evicted."""
    deployment = deploy()
    applications = run_everything(deployment)
    deployment.run_example("check")

    deployment.run_example("upgrade")
    deployment.run_example("rolling-restart")

    for server in SERVERS:
        assert (deployment.directory(server) / "namesrv").readlink().name == "namesrv-0.2.0"
        assert len(deployment.log(server, "listening")) == 2
        assert len(deployment.log(server, "stopped")) == 1
        assert deployment.log(server, "broker_evicted") == []
    for application in applications:
        seen = counted(application)
        assert seen["pulls"] > 50
        # The application had to change servers.
        assert len(seen["servers"]) > 1
    deployment.run_example("check")


def test_upgrade_stops_if_the_new_version_refuses_the_settings(deploy: Deploy) -> None:
    """If the new version refuses the settings, nothing changes, and the link marks the old version."""
    deployment = deploy("NAMESRV_BROKER_EXPIRY_SECONDS=2m")

    output = deployment.run_example("upgrade", code=2)

    assert "broker-expiry-seconds" in output
    for server in SERVERS:
        assert (deployment.directory(server) / "namesrv").readlink().name == "namesrv-1"
    assert (
        deployment.directory("ns1") / "namesrv-0.2.0" / "bin" / "pip.arguments"
    ).read_text() == "install -r /srv/namesrv-0.2.0/namesrv.txt -r /srv/namesrv-0.2.0/namesrv-ctl.txt\n"


def test_disconnected_host_recovers(deploy: Deploy) -> None:
    """Only the disconnected server evicts the brokers, and recovers without help."""
    deployment = deploy("NAMESRV_BROKER_EXPIRY_SECONDS=20", "NAMESRV_SCAN_INTERVAL_SECONDS=1")
    applications = run_everything(deployment, "heartbeat_seconds = 1.0")
    lost = deployment.host("ns2")

    lost.cut()
    assert "ns2:9876" in deployment.run("namesrvctl -s 'ns1:9876;ns2:9876;ns3:9876' status", code=1)
    for broker in BROKERS:
        deployment.wait_for_eviction("ns2", broker_name=broker, reason="silent")
    assert "ns2:9876" in deployment.run_example("cut-off")
    # An application that still waits for ns2 would see its brokers return one by one.
    for application in applications:
        application.wait_until_it_leaves("ns2")
    lost.mend()
    until_whole(deployment)

    assert deployment.log("ns1", "broker_evicted") + deployment.log("ns3", "broker_evicted") == []
    for application in applications:
        seen = counted(application)
        assert seen["longest_seconds"] < 60


def test_server_is_replaced_by_another_one(deploy: Deploy) -> None:
    """A server is added, for brokers first, and another one removed, for clients first; no route lacks a broker."""
    deployment = deploy()
    deployment.lists("brokers", *SERVERS)
    deployment.lists("clients", *SERVERS)
    applications = run_everything(deployment, "refresh_seconds = 0.5")

    deployment.run(f"ssh {NEW_SERVER} sudo systemctl start namesrv")
    deployment.lists("brokers", *SERVERS, NEW_SERVER)
    deployment.until("namesrvctl -s 'ns1:9876;ns4:9876' diff")
    deployment.lists("clients", *SERVERS, NEW_SERVER)

    remaining = (*SERVERS[1:], NEW_SERVER)
    deployment.lists("clients", *remaining)
    deployment.until("namesrvctl -s ns1:9876 connections --role client -o json | jq -e '.servers[0].connections == []'")
    deployment.lists("brokers", *remaining)
    for broker in BROKERS:
        deployment.wait_for_eviction("ns1", broker_name=broker, reason="unregistered")
    deployment.run("ssh ns1 sudo systemctl stop namesrv")

    for application in applications:
        seen = counted(application)
        assert seen["servers"][-1].removesuffix(":9876") in remaining
    deployment.run("namesrvctl -s 'ns2:9876;ns3:9876;ns4:9876' diff")
