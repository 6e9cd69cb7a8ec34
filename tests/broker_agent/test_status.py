"""The agent's status as a value and as metrics."""

import json
import logging
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from namesrv_broker_agent import AgentStatus, LinkCounts, ServerState, SyncBrokerAgent, TopicConfig
from namesrv_broker_agent.link.state import LinkState
from namesrv_broker_agent.metrics import export_opentelemetry, export_prometheus
from tests.support.agents import ADDR, CLUSTER, NAME, TOPICS, agent_settings, real
from tests.support.exported import OpenTelemetry, scraped
from tests.support.fake_clock import FakeClock, until
from tests.support.recording_callbacks import RecordingCallbacks

MANUAL = Path(__file__).parents[2] / "broker_agent" / "README.md"
START = 1_700_000_000.0
STOPPED = AgentStatus(CLUSTER, NAME, 0, ADDR, is_started=False, is_ready=False, topics=2, data_version=0)


async def test_status_contains_the_broker_and_each_server(tmp_path: Path) -> None:
    """Each server has its registration, last heartbeat and counts; for an unreachable one lateness grows."""
    async with real(tmp_path) as it:
        await it.agent.registered()
        known = ServerState(
            it.proxy.address,
            "registered",
            START,
            "native",
            it.server.namesrv.boot.id,
            START,
            counts=LinkCounts(registrations=1),
            last_heartbeat=START,
            is_settled=True,
        )
        started = replace(STOPPED, is_started=True, is_ready=True, servers=(known,))
        assert started == it.agent.status()
        json.dumps(asdict(started))
        it.clock.step_wall(3600.0)
        now = START + 3600
        assert it.agent.status().servers == (replace(known, since=now, last_response=now, last_heartbeat=now),)
        it.clock.step_wall(-3600.0)

        # the first heartbeat comes after half a period, the next ones after 28.5 s
        await it.passing(lambda: it.state.counts.heartbeats == 1)
        assert pytest.approx(START + 14.25, abs=0.11) == it.state.last_heartbeat
        it.proxy.cut()
        await until(lambda: it.state.status == "unreachable")
        assert it.state.counts == LinkCounts(registrations=1, heartbeats=1, failures=1)
        assert (it.state.lateness_seconds, it.agent.status().is_ready) == (0.0, False)
        assert it.state.last_response == it.state.last_heartbeat
        assert pytest.approx(it.clock.wall()) == it.state.since
        # a reset or a graceful close, as the kernel decides
        assert str(it.state.last_error).startswith(f"connection to {it.proxy.address} was ")
        it.clock.stall(START + 60 - it.clock.wall())
        assert pytest.approx(60 - 30 - 14.25, abs=0.11) == it.state.lateness_seconds

        await it.proxy.heal()
        await it.passing(lambda: it.agent.status().is_ready)
        assert it.state.counts == LinkCounts(registrations=2, heartbeats=1, failures=1, reconnects=1)
        assert it.state.lateness_seconds == 0.0
        (link,) = it.agent._links
    assert (link.monotonic_state.status, it.agent.status()) == ("stopped", STOPPED)


def test_first_contact_with_a_server_is_not_a_late_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    """A server that becomes reachable long after the start had no heartbeat that could be late."""
    clock = FakeClock()
    state = LinkState("10.0.0.1:9876", 30.0, clock, lambda _: None)
    clock.stall(44.0)
    state.registration_accepted("b1")
    assert caplog.messages == []

    clock.stall(44.0)
    state.heartbeat_accepted(None)
    assert caplog.messages == ["heartbeat to 10.0.0.1:9876 was 14.0 s late"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("no connection to ns:9876: connection refused", "no connection to ns:9876: connection refused"),
        ("access denied", "ns:9876: access denied"),
    ],
)
def test_failure_is_logged_with_the_address_of_the_server(
    error: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The errors of connections name the server already, and its responses do not."""
    caplog.set_level(logging.INFO, "namesrv_agent.connection")
    LinkState("ns:9876", 30.0, FakeClock(), lambda _: None).failed(error, None)

    assert caplog.messages == [line]


async def test_both_libraries_show_the_same_metrics(tmp_path: Path) -> None:
    """Both libraries show an unreachable server as late, and nothing after the end of the export."""
    registry, telemetry = CollectorRegistry(), OpenTelemetry()
    async with real(tmp_path) as it:
        ends = [export_prometheus(it.agent, registry), export_opentelemetry(it.agent, telemetry.meter)]
        it.proxy.cut()
        await until(lambda: it.state.status == "unreachable")
        it.clock.stall(42.0)

        of_broker, of_server = f'broker="{NAME}"', f'broker="{NAME}",server="{it.proxy.address}"'
        expected = [
            f"namesrv_agent_failures_total{{{of_server}}} 1.0",
            f"namesrv_agent_heartbeat_lateness_seconds{{{of_server}}} 12.0",
            f"namesrv_agent_heartbeats_total{{{of_server}}} 0.0",
            f"namesrv_agent_ready{{{of_broker}}} 0.0",
            f"namesrv_agent_reconnects_total{{{of_server}}} 0.0",
            f"namesrv_agent_refusals_total{{{of_server}}} 0.0",
            f"namesrv_agent_registered{{{of_server}}} 0.0",
            f"namesrv_agent_registrations_total{{{of_server}}} 1.0",
            f"namesrv_agent_servers_unreadable{{{of_broker}}} 0.0",
            f"namesrv_agent_settled{{{of_server}}} 0.0",
            f"namesrv_agent_topics{{{of_broker}}} 2.0",
        ]
        assert expected == scraped(registry) == telemetry.collected()
        assert {line.partition("{")[0] for line in expected} == set(
            re.findall(r"`(namesrv_agent_\w+)", MANUAL.read_text())
        )
        for end in ends:
            end()
        assert (scraped(registry), telemetry.collected()) == ([], [])
    telemetry.close()


async def test_callbacks_run_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Failing callbacks change nothing; ready means registered everywhere and may recur; a stopped agent runs none."""
    callbacks = RecordingCallbacks()
    async with real(tmp_path, options=callbacks.options) as it:
        server = it.proxy.address
        assert callbacks.take() == [("servers_changed", f"('{server}',)"), ("connected", server), ("ready",)]
        await it.agent.create_topic(TopicConfig("refunds", 1, 1))
        await it.agent.registered()
        assert callbacks.take() == []

        it.proxy.cut()
        await until(lambda: callbacks.calls)
        assert callbacks.take() == [("disconnected", server)]
        await it.proxy.heal()
        await it.passing(lambda: len(callbacks.calls) == 2)
        assert callbacks.take() == [("connected", server), ("ready",)]
    assert callbacks.take() == []
    failures = [record for record in caplog.records if record.name == "namesrv_agent.callback"]
    assert len(failures) == 6


def test_agent_that_is_not_started_has_a_status() -> None:
    """Metrics may be exported before the agent starts, without a failing scrape."""
    agent = SyncBrokerAgent(agent_settings("127.0.0.1:1"), TOPICS)
    registry = CollectorRegistry()
    export_prometheus(agent, registry, name="mine")

    assert agent.status() == STOPPED
    assert 'namesrv_agent_ready{broker="mine"} 0.0' in scraped(registry)


def test_boot_id_is_that_of_the_last_response() -> None:
    """Apache's server, which has no boot id, may replace namesrv at an address."""
    state = LinkState("ns:9876", 30.0, FakeClock(), lambda _: None)
    state.registration_accepted("b1")
    state.connection_replaced()
    state.registration_accepted(None)

    assert state.current.boot_id is None
