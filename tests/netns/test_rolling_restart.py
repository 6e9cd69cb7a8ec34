"""docs/deploying.md keeps its promises: restarts, upgrades and a pulled cable that no application notices."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.netns.deployment import BROKERS, NEW_SERVER, SERVERS, Application, Deployment

Deploy = Callable[..., Deployment]


KINDS: Final = {"app1": "poll", "app2": "watch", "app3": "java"}
# those that take another list of servers while they run
FOLLOWING: Final = {"app1": "poll", "app2": "watch"}


def run_everything(deployment: Deployment, *agent_settings: str, kinds: Mapping[str, str] = KINDS) -> list[Application]:
    """Start servers, brokers and an application of each kind; the applications, when each has a complete route."""
    deployment.start_servers()
    for name in BROKERS:
        deployment.start_broker(name, *agent_settings)
    until_whole(deployment)
    return [deployment.start_application(name, kind) for name, kind in kinds.items()]


def until_whole(deployment: Deployment) -> None:
    """Return once all servers have all brokers."""
    deployment.until(f"namesrvctl -s '{deployment.name_servers}' brokers --name broker-b")
    deployment.until(f"namesrvctl -s '{deployment.name_servers}' diff")


def counted(application: Application) -> dict[str, Any]:
    """What an application has seen: no pull failed, and no route lacked a broker."""
    seen = application.end()
    assert (seen["failed"], seen["incomplete"]) == ([], [])
    return seen


def test_rolling_upgrade(deploy: Deploy) -> None:
    """All three servers get another version and are restarted: no pull fails, no route lacks a broker, nobody goes."""
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
        # a question that crosses the closing of its connection is lost, one on each server at most
        assert set(seen["repeated"]) <= {"EOFError", "ConnectionResetError"}
        assert len(seen["repeated"]) <= len(SERVERS)
        assert seen["pulls"] > 50
        # it did have to move
        assert len(seen["servers"]) > 1
    deployment.run_example("check")


def test_upgrade_stops_at_a_version_that_does_not_take_the_settings(deploy: Deploy) -> None:
    """Then nothing has been touched: the link still says what it said."""
    deployment = deploy("NAMESRV_BROKER_EXPIRY_SECONDS=2m")

    said = deployment.run_example("upgrade", code=2)

    assert "broker-expiry-seconds" in said
    for server in SERVERS:
        assert (deployment.directory(server) / "namesrv").readlink().name == "namesrv-1"
    assert (
        deployment.directory("ns1") / "namesrv-0.2.0" / "bin" / "pip.said"
    ).read_text() == "install -r /srv/namesrv-0.2.0/namesrv.txt -r /srv/namesrv-0.2.0/namesrv-ctl.txt\n"


def test_host_that_is_cut_off_and_comes_back(deploy: Deploy) -> None:
    """It evicts everybody, alone; nobody else loses a broker, and it is whole again by itself."""
    deployment = deploy("NAMESRV_BROKER_EXPIRY_SECONDS=20", "NAMESRV_SCAN_INTERVAL_SECONDS=1")
    applications = run_everything(deployment, "heartbeat_seconds = 1.0")
    lost = deployment.host("ns2")

    lost.cut()
    assert "ns2:9876" in deployment.run("namesrvctl -s 'ns1:9876;ns2:9876;ns3:9876' status", code=1)
    for broker in BROKERS:
        deployment.wait_for_log("ns2", "broker_evicted", broker_name=broker, reason="silent")
    assert "ns2:9876" in deployment.run_example("cut-off")
    # ns2 comes back with no brokers, and an application that still waited for it would see them return one by one
    for application in applications:
        application.wait_until_it_leaves("ns2")
    lost.mend()
    until_whole(deployment)

    assert deployment.log("ns1", "broker_evicted") + deployment.log("ns3", "broker_evicted") == []
    for application in applications:
        seen = counted(application)
        # one that had asked ns2 waited for it in vain, or saw its connection end
        assert set(seen["repeated"]) <= {"TimeoutError", "EOFError", "ConnectionResetError"}
        assert len(seen["repeated"]) <= 1
        assert seen["longest_seconds"] < 60


def test_another_server_takes_the_place_of_the_first(deploy: Deploy) -> None:
    """A fourth is added, brokers first; the first is removed, clients first; nobody ever misses a broker."""
    deployment = deploy()
    deployment.lists("brokers", *SERVERS)
    deployment.lists("clients", *SERVERS)
    applications = run_everything(deployment, "refresh_seconds = 0.5", kinds=FOLLOWING)

    deployment.run(f"ssh {NEW_SERVER} sudo systemctl start namesrv")
    deployment.lists("brokers", *SERVERS, NEW_SERVER)
    deployment.until("namesrvctl -s 'ns1:9876;ns4:9876' diff")
    deployment.lists("clients", *SERVERS, NEW_SERVER)

    remaining = (*SERVERS[1:], NEW_SERVER)
    deployment.lists("clients", *remaining)
    deployment.until("namesrvctl -s ns1:9876 connections --role client -o json | jq -e '.servers[0].connections == []'")
    deployment.lists("brokers", *remaining)
    for broker in BROKERS:
        deployment.wait_for_log("ns1", "broker_evicted", broker_name=broker, reason="unregistered")
    deployment.run("ssh ns1 sudo systemctl stop namesrv")

    for application in applications:
        seen = counted(application)
        assert seen["servers"][-1].removesuffix(":9876") in remaining
    deployment.run("namesrvctl -s 'ns2:9876;ns3:9876;ns4:9876' diff")
