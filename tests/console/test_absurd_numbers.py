"""Pages over servers that send numbers that mean nothing."""

import math
from dataclasses import replace
from typing import Any

import pytest

from namesrv_console.app import PAGES
from namesrv_console.state import ConnectionReport, ServerView, TopicReport, seen_brokers
from namesrv_remoting.bodies.extensions import Connection, Event, LiveBroker, ServerInfo, Traffic
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.support.console import console
from tests.support.fake_clock import FakeClock

SERVER = "127.0.0.1:1"
QUERIES = {"topic": "?name=T", "broker": "?cluster=c1&name=a"}


def absurd(view: ServerView, number: float, whole: int, clock: FakeClock) -> ServerView:
    """A server that reports one of these numbers wherever it may."""
    traffic = Traffic(whole, whole, whole, whole, whole, [number], [1, 2])
    info = ServerInfo("boot", ready=True, revision=1, started_ms=whole, uptime_seconds=number, traffic=traffic)
    times: dict[str, Any] = dict.fromkeys(("age_seconds", "expires_in_seconds", "expiry_seconds"), number)
    brokers = [LiveBroker("c1", "a", of, "h:1", topics=whole, **times) for of in (0, 1)]
    about: dict[str, Any] = {
        "cluster": "c1",
        "broker_name": "a",
        "broker_id": 0,
        "reason": "silent",
        "silent_ms": whole,
    }
    now_ms = round(clock.wall() * 1000)
    happened = ("evict", whole), ("evict", now_ms), ("register", now_ms)
    events = [Event(seq, name, ts_ms, about) for seq, (name, ts_ms) in enumerate(happened, 1)]
    answered = view.answered(clock.monotonic(), info=info)
    return replace(
        answered.with_events(events),
        brokers=seen_brokers({}, brokers, clock.monotonic()),
        topic_report=TopicReport(
            frozenset({"T"}),
            {"T": TopicRouteData([BrokerData("c1", "a", {0: "h:1"})], [QueueData("a", whole, whole, 6)])},
            1,
        ),
        connection_report=ConnectionReport(
            0.0, (Connection(1, "h:2", since_ms=whole, last_request_seconds=number, unsent_bytes=whole),)
        ),
    )


@pytest.mark.parametrize("whole", [1 << 62, -1 << 62])
@pytest.mark.parametrize("number", [math.inf, math.nan, -1e308])
async def test_every_page_is_shown(number: float, whole: int) -> None:
    """A server that sends absurd numbers does not take the pages away."""
    clock = FakeClock()
    async with console(clock, SERVER) as shown:
        observed = shown.console.observed
        observed.put(absurd(observed.cluster.server(SERVER), number, whole, clock))

        for page in PAGES:
            if page.is_live:
                await shown.text(page.path + QUERIES.get(page.name, ""))


async def test_removal_for_an_unknown_reason_is_shown() -> None:
    """A newer server may remove a broker for a reason that this console does not know."""
    clock = FakeClock()
    async with console(clock, SERVER) as shown:
        observed = shown.console.observed
        about: dict[str, Any] = {"cluster": "c1", "broker_name": "a", "broker_id": 0, "reason": "expelled"}
        view = observed.cluster.server(SERVER).answered(clock.monotonic(), info=ServerInfo("boot", ready=True))
        event = Event(1, "evict", round(clock.wall() * 1000), about)
        observed.put(view.with_events([event]))

        overview, broker = await shown.text("/"), await shown.text("/broker?cluster=c1&name=a")

    for page in (overview, broker):
        assert "c1/a/0, 127.0.0.1:1: removed" in page
