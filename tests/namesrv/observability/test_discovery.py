"""Discovery pages: the list of NameServers, and targets for Prometheus."""

import asyncio
import json
from collections import Counter

import pytest
from starlette.types import Message

from namesrv.observability.discovery import (
    BURST_REQUESTS,
    NAME_SERVERS_PAGE,
    RESOLVE_EVERY_SECONDS,
    Discovery,
    Endpoint,
    NameServers,
    RequestRate,
)
from tests.support.fake_clock import FakeClock
from tests.support.http_peer import HttpResponse, ask
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import MASTER, SLAVE, NamesrvPeer

LIST = "10.0.0.1:9876;[fd00::2]:9876"


async def get(address: tuple[str, int], target: str) -> tuple[int, str]:
    """Status and text of a page."""
    response: HttpResponse = await asyncio.to_thread(ask, address, target)
    return response.status, response.text


@pytest.mark.parametrize("page", ["/rocketmq/nsaddr", "/rocketmq/nsaddr/", "/rocketmq/nsaddr-unit1?nofix=1"])
@pytest.mark.settings(http_listen="127.0.0.1:0", name_servers_listen="127.0.0.1:0", name_servers=LIST)
async def test_list_is_served_on_both_ports(server: InProcess, page: str) -> None:
    """Brokers and clients get the list as RocketMQ's address server has it, with or without unit name or slash."""
    controller = server.controller
    for address in (controller.http.pages[0], controller.http.name_servers[0]):
        assert await get(address, page) == (200, f"{LIST}\n")


@pytest.mark.settings(http_listen="", name_servers_listen="127.0.0.1:0", name_servers=LIST)
async def test_port_of_the_list_has_no_other_page(server: InProcess) -> None:
    """Peers that may read the list need not reach health and metrics."""
    (address,) = server.controller.http.name_servers
    expected = (404, "not found; try /rocketmq/nsaddr\n")

    for page in ("/livez", "/readyz", "/metrics", "/sd/prometheus"):
        assert await get(address, page) == expected
    assert server.namesrv.counters.http == {("other", 404): 4}


@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_list_is_off_without_the_setting(server: InProcess) -> None:
    """An unset list is an error, and not an empty list, which would tell clients that no NameServer exists."""
    assert await get(server.controller.http.pages[0], "/rocketmq/nsaddr") == (404, "name-servers is not set\n")


async def test_names_are_resolved_again() -> None:
    """A name stands for all of its addresses; while the resolver fails, the last ones stay. New names count at once."""
    clock, configured = FakeClock(), [("ns", 9876), ("new", 9877)]
    answers = {"ns": ["10.0.0.1:9876"], "new": [], "added": ["10.0.0.9:9876"]}

    async def resolve(endpoint: Endpoint) -> list[str]:
        return answers[endpoint[0]]

    name_servers = NameServers(lambda: tuple(configured), clock, resolve)
    assert await name_servers.addresses() == ["10.0.0.1:9876", "new:9877"]

    answers["ns"] = ["10.0.0.1:9876", "10.0.0.4:9876"]
    assert await name_servers.addresses() == ["10.0.0.1:9876", "new:9877"]

    await clock.advance(RESOLVE_EVERY_SECONDS)
    assert await name_servers.addresses() == ["10.0.0.1:9876", "10.0.0.4:9876", "new:9877"]

    answers["ns"] = []
    await clock.advance(RESOLVE_EVERY_SECONDS)
    assert await name_servers.addresses() == ["10.0.0.1:9876", "10.0.0.4:9876", "new:9877"]

    configured.append(("added", 9876))
    assert await name_servers.addresses() == ["10.0.0.1:9876", "10.0.0.4:9876", "new:9877", "10.0.0.9:9876"]


async def test_requests_of_one_address_are_bounded() -> None:
    """One address may send a burst, and then so many requests a second; other addresses are not affected."""
    clock = FakeClock()
    rate = RequestRate(clock)

    assert [rate.admit("10.0.0.1") for _ in range(int(BURST_REQUESTS) + 1)] == [True] * int(BURST_REQUESTS) + [False]
    assert rate.admit("10.0.0.2")

    await clock.advance(0.1)
    assert [rate.admit("10.0.0.1") for _ in range(3)] == [True, True, False]


@pytest.mark.settings(name_servers=LIST)
async def test_addresses_of_one_network_share_their_requests(server: InProcess) -> None:
    """A host may use any address of its /64 network in IPv6."""
    application = Discovery(server.namesrv).name_servers_application()
    statuses: Counter[int] = Counter()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses[message["status"]] += 1

    for number in range(int(BURST_REQUESTS) + 5):
        scope = {"type": "http", "method": "GET", "path": NAME_SERVERS_PAGE, "headers": [], "query_string": b""}
        await application(scope | {"client": (f"2001:db8::{number:x}", 1)}, receive, send)

    assert statuses == {200: BURST_REQUESTS, 429: 5}


@pytest.mark.settings(
    http_listen="127.0.0.1:0",
    name_servers="10.0.0.1:9876;10.0.0.2:9876",
    broker_metrics_target="{broker_name}.{host}:1",
)
async def test_targets_for_prometheus(server: InProcess, peer: NamesrvPeer) -> None:
    """NameServers have the port of this server's metrics; each broker's target is filled in from the setting."""
    await peer.register(MASTER)
    await peer.register(SLAVE)
    (address,) = server.controller.http.pages

    status, text = await get(address, "/sd/prometheus")

    def broker(host: str, broker_id: str) -> dict[str, object]:
        meta = {"role": "broker", "cluster": "cluster-1", "broker_name": "broker-a", "broker_id": broker_id}
        return {
            "targets": [f"broker-a.{host}:1"],
            "labels": {f"__meta_namesrv_{name}": value for name, value in meta.items()},
        }

    name_servers = [f"10.0.0.1:{address[1]}", f"10.0.0.2:{address[1]}"]
    assert (status, json.loads(text)) == (
        200,
        [
            {"targets": name_servers, "labels": {"__meta_namesrv_role": "nameserver"}},
            broker("10.0.0.1", "0"),
            broker("10.0.0.2", "1"),
        ],
    )
