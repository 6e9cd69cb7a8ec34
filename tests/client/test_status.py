"""The client's status as a value and as metrics."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from namesrv_client import ClientSettings, ClientStatus, RouteStatus, ServerStatus, SyncRouteClient, WatchStatus
from namesrv_client.metrics import TABLE, export_opentelemetry, export_prometheus
from tests.support.exported import OpenTelemetry, scraped
from tests.support.fake_clock import passing, until
from tests.support.route_clients import BROKER_A, RouteScene, route_scene

MANUAL = Path(__file__).parents[2] / "client" / "README.md"
START = 1_700_000_060.0


async def failed_over(scene: RouteScene) -> None:
    """A client with one route, failed over to the second server 10 s later."""
    await scene.client.route("orders")
    scene.clock.stall(10.0)
    scene.proxy.cut()
    await until(lambda: scene.client.status().servers[0].state == "disconnected")
    assert await scene.client.refresh()


async def test_status_contains_servers_and_routes(tmp_path: Path) -> None:
    """Each server has its state, error and request counts; each route has its age, source and revision."""
    async with route_scene(tmp_path, [BROKER_A], [BROKER_A], poll_seconds=80_000.0) as scene:
        first, second = scene.proxy.address, scene.servers[1].where
        unused = [
            ServerStatus(each, "unused", START, each == first, None, None, None, None, {}, 0)
            for each in (first, second)
        ]
        name = scene.client.settings.client_name
        assert ClientStatus(name, is_started=True, is_ready=False, servers=tuple(unused)) == scene.client.status()

        await failed_over(scene)
        scene.clock.stall(2.5)
        status = scene.client.status()
        assert (status.is_ready, status.failovers, status.unanswered, status.changes) == (True, 1, 0, 1)
        chosen, lost = status.servers
        boots = [server.namesrv.boot.id for server in scene.servers]
        assert chosen == ServerStatus(
            second,
            "connected",
            START + 10,
            is_chosen=True,
            protocol="native",
            boot_id=boots[1],
            last_response=START + 10,
            last_error=None,
            pulls={"answered": 1},
            reconnects=0,
        )
        assert (
            lost.address,
            lost.state,
            lost.since,
            lost.boot_id,
            lost.last_response,
        ) == (first, "disconnected", START + 10, boots[0], START)
        assert lost.pulls == {"answered": 1, "unreachable": 1}
        scene.clock.step_wall(3600.0)
        assert [each.since for each in scene.client.status().servers] == [START + 3610, START + 3610]
        assert "no connection" in (lost.last_error or "")
        revision = scene.servers[1].namesrv.manager.revisions.revision
        assert status.routes == (RouteStatus("orders", "pull", 2.5, revision, None, is_in_use=True),)
        assert status.name_servers_error is None
        json.dumps(asdict(status))
    assert not scene.client.status().is_started


async def test_status_contains_watches_and_readiness(tmp_path: Path) -> None:
    """Without a reachable server the client is not ready, and keeps its routes."""
    async with route_scene(tmp_path, poll_seconds=80_000.0, watch=True) as scene:
        await scene.client.route("orders")
        await scene.watched()
        assert scene.client.status().watches == (WatchStatus(scene.proxy.address, START, 1),)
        scene.clock.step_wall(3600.0)
        assert scene.client.status().watches == (WatchStatus(scene.proxy.address, START + 3600, 1),)

        scene.proxy.cut()
        await until(lambda: not scene.client.status().watches)
        assert not await scene.client.refresh()
        status = scene.client.status()
        assert (status.is_ready, status.unanswered, [it.state for it in status.servers]) == (False, 1, ["disconnected"])
        assert [(route.topic, route.absent_seconds) for route in status.routes] == [("orders", None)]

        await scene.proxy.heal()
        await passing(scene.clock, lambda: scene.client.status().watches)
        assert await scene.client.refresh()
        status = scene.client.status()
        assert (status.is_ready, status.servers[0].reconnects, status.failovers) == (True, 1, 0)


def test_metrics_tell_absent_and_unused_routes_apart() -> None:
    """A topic that does not exist any more is no known route, and a route that is not used may be old."""
    routes = (
        RouteStatus("orders", "pull", 2.5, 7, None, is_in_use=True),
        RouteStatus("refunds", "watch", 3.0, 7, 1.0, is_in_use=True),
        RouteStatus("bills", "disk", 900.0, None, None, is_in_use=False),
    )
    registry, status = CollectorRegistry(), ClientStatus("c", is_started=True, is_ready=True, routes=routes)
    end = TABLE.to_prometheus("c", lambda: status, registry)

    found = [line for line in scraped(registry) if "route" in line and "changes" not in line]
    end()
    assert found == [
        'namesrv_client_oldest_route_age_seconds{client="c"} 3.0',
        'namesrv_client_routes_absent{client="c"} 1.0',
        'namesrv_client_routes{client="c",source="disk"} 1.0',
        'namesrv_client_routes{client="c",source="pull"} 1.0',
        'namesrv_client_routes{client="c",source="watch"} 0.0',
    ]


async def test_both_libraries_show_the_same_metrics(tmp_path: Path) -> None:
    """Both libraries read current values; after the end of an export its metrics are gone and its name is free."""
    registry, telemetry = CollectorRegistry(), OpenTelemetry()
    async with route_scene(tmp_path, [BROKER_A], [BROKER_A], poll_seconds=80_000.0) as scene:
        first, second = scene.proxy.address, scene.servers[1].where
        ends = [export_prometheus(scene.client, registry), export_opentelemetry(scene.client, telemetry.meter)]
        await failed_over(scene)
        scene.clock.stall(2.5)

        expected = [
            f'namesrv_client_connected{{client="default",server="{first}"}} 0.0',
            f'namesrv_client_connected{{client="default",server="{second}"}} 1.0',
            'namesrv_client_failovers_total{client="default"} 1.0',
            'namesrv_client_oldest_route_age_seconds{client="default"} 2.5',
            f'namesrv_client_pulls_total{{client="default",result="answered",server="{first}"}} 1.0',
            f'namesrv_client_pulls_total{{client="default",result="answered",server="{second}"}} 1.0',
            f'namesrv_client_pulls_total{{client="default",result="unreachable",server="{first}"}} 1.0',
            'namesrv_client_ready{client="default"} 1.0',
            f'namesrv_client_reconnects_total{{client="default",server="{first}"}} 0.0',
            f'namesrv_client_reconnects_total{{client="default",server="{second}"}} 0.0',
            'namesrv_client_route_changes_total{client="default"} 1.0',
            'namesrv_client_routes_absent{client="default"} 0.0',
            'namesrv_client_routes{client="default",source="disk"} 0.0',
            'namesrv_client_routes{client="default",source="pull"} 1.0',
            'namesrv_client_routes{client="default",source="watch"} 0.0',
            'namesrv_client_servers_unreadable{client="default"} 0.0',
            'namesrv_client_unanswered_total{client="default"} 0.0',
            'namesrv_client_watches{client="default"} 0.0',
        ]
        assert sorted(expected) == scraped(registry) == telemetry.collected()
        assert {line.partition("{")[0] for line in expected} == set(
            re.findall(r"`(namesrv_client_\w+)", MANUAL.read_text())
        )
        # each scrape reads current values
        scene.clock.stall(1.0)
        age = 'namesrv_client_oldest_route_age_seconds{client="default"} 3.5'
        assert age in scraped(registry)
        assert age in telemetry.collected()

        with pytest.raises(ValueError, match=r"^the metrics of client 'default' are exported already$"):
            export_prometheus(scene.client, registry)
        with pytest.raises(ValueError, match=r"^the metrics of client 'default' are exported already$"):
            export_opentelemetry(scene.client, telemetry.meter)
        another = [export_prometheus(scene.client, registry, name="another")]
        another.append(export_opentelemetry(scene.client, telemetry.meter, name="another"))
        assert len(scraped(registry)) == len(telemetry.collected()) == 2 * len(expected)
        for end in (*ends, *another):
            end()
        assert (scraped(registry), telemetry.collected()) == ([], [])
        export_prometheus(scene.client, registry)
        assert len(expected) == len(scraped(registry))
    telemetry.close()


def test_a_client_that_is_not_started_has_a_status() -> None:
    """Metrics may be exported before the client starts, without a failing scrape."""
    client = SyncRouteClient(ClientSettings(name_servers="127.0.0.1:1", client_name="c1"))
    registry = CollectorRegistry()
    export_prometheus(client, registry, name="c1")

    assert client.status() == ClientStatus("c1", is_started=False, is_ready=False)
    assert 'namesrv_client_ready{client="c1"} 0.0' in scraped(registry)


@pytest.mark.slow
def test_metrics_libraries_are_imported_on_demand() -> None:
    """Neither the packages nor their metrics modules import a metrics library."""
    code = (
        "import sys, namesrv_client.metrics, namesrv_broker_agent.metrics, namesrv_client, namesrv_broker_agent\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('prometheus_client', 'opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
