"""Addresses that native brokers advertise for address views, in every response that has addresses of brokers."""

import logging
from pathlib import Path
from typing import Any

import msgpack
import pytest

from namesrv_remoting.codes import RequestCode
from tests.namesrv.test_peer_views import addresses, views_file
from tests.support.fake_clock import until
from tests.support.in_process import InProcess, guarded_namesrv
from tests.support.logged import logged
from tests.support.namesrv_peer import (
    MASTER,
    SLAVE,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    native_registration,
)
from tests.support.spelling import Response

# a peer at 127.0.0.2 has the view outside, a peer at 127.0.0.3 the view partner
VIEWS = """
[[views]]
name = "outside"
networks = ["127.0.0.2"]
[[views]]
name = "partner"
networks = ["127.0.0.3"]
others = "hide"
[[views.brokers]]
broker_id = 0
shown = "{broker_name}.partner.example.com:{port}"
"""
ADVERTISED: dict[str, dict[str, str]] = {
    "broker_addr": {"outside": "203.0.113.7:30911", "partner": "203.0.113.8:10911"},
    "ha_server_addr": {"outside": "203.0.113.7:30912"},
}
ACTING: dict[str, Any] = {"enableActingMaster": "true"}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Settings of a server with the views."""
    return {"address_views": str(views_file(tmp_path, VIEWS)), "notify_min_broker_id_changed": True}


async def advertise(
    peer: NamesrvPeer, broker: Broker, advertised: object = ADVERTISED, seq: int = 1, **ext: str
) -> Response:
    """A native registration with advertised addresses, or without if they are None."""
    members: dict[str, Any] = {} if advertised is None else {"advertised": advertised}
    body = native_registration("T", "U", **members)
    identity: dict[str, Any] = {"agentId": "agent", "registrationSeq": str(seq), **ext}
    return await peer.register(broker, body, spelling="native", **identity)


async def shown(peer: NamesrvPeer, spelling: Spelling = "json") -> dict[str, str]:
    """The addresses of broker-a in the route of T, as the dispatcher and then the fast path show them."""
    seen = []
    for _ in range(3):
        response = await peer.call(105, {"topic": "T"}, spelling=spelling)
        seen.append(addresses(response.body, spelling)["broker-a"])
    assert seen[0] == seen[1] == seen[2]
    return seen[0]


async def test_routes_have_the_address_that_the_broker_advertises(server: InProcess, spelling: Spelling) -> None:
    """A rule of the file overrules the broker; peers without a view get the registered address."""
    inside, outside, partner = [await server.connect(source=f"127.0.0.{number}") for number in (1, 2, 3)]
    await advertise(inside, MASTER)
    await advertise(inside, SLAVE)

    assert await shown(inside, spelling) == {"0": MASTER.addr, "1": SLAVE.addr}
    assert await shown(outside, spelling) == {"0": "203.0.113.7:30911", "1": "203.0.113.7:30911"}
    assert await shown(partner, spelling) == {"0": "broker-a.partner.example.com:10911", "1": "203.0.113.8:10911"}


async def test_slave_gets_the_advertised_addresses_of_its_master(server: InProcess) -> None:
    """The response to its registration has both addresses, also if the registration is unchanged."""
    inside, outside = await server.connect(), await server.connect(source="127.0.0.2")
    await advertise(inside, MASTER, haServerAddr="10.0.0.1:10912")
    for number in (1, 2):
        response = await advertise(outside, SLAVE, None, number)
        assert (response.fields["masterAddr"], response.fields["haServerAddr"]) == (
            "203.0.113.7:30911",
            "203.0.113.7:30912",
        )


async def test_notices_have_advertised_addresses(server: InProcess) -> None:
    """905 names the new master, and later the lost one, as a slave outside knows them."""
    inside, outside = await server.connect(), await server.connect(source="127.0.0.2")
    await advertise(outside, SLAVE, None, **ACTING)
    await advertise(inside, MASTER, haServerAddr="10.0.0.1:10912", **ACTING)
    came = await outside.receive()
    await inside.call(104, {**MASTER.ext, "agentId": "agent", "registrationSeq": "1"}, spelling="native")
    went = await outside.receive()

    master = {"minBrokerAddr": "203.0.113.7:30911", "haBrokerAddr": "203.0.113.7:30912"}
    assert (came.ext_fields or {}).items() >= {**master, "minBrokerId": "0"}.items()
    assert (went.ext_fields or {}).items() >= {"minBrokerId": "1", "offlineBrokerAddr": "203.0.113.7:30911"}.items()


async def test_change_of_advertised_addresses_reaches_clients(server: InProcess) -> None:
    """Waiting watches and later polls get other addresses, and the registered one if none is advertised any more."""
    inside, outside = await server.connect(), await server.connect(source="127.0.0.2")
    await advertise(inside, MASTER)
    pull: dict[str, Any] = {"topics": ["T"], "boot_id": server.namesrv.boot.id, "since": 0, "wait_ms": 0}
    first = await outside.call(RequestCode.PULL_ROUTES, None, native(pull), spelling="native")
    pull |= {"since": msgpack.unpackb(first.body, strict_map_key=False)["revision"], "wait_ms": 60_000}
    watch = outside.send_request(RequestCode.PULL_ROUTES, None, native(pull), spelling="native")

    await advertise(inside, MASTER, {"broker_addr": {"outside": "[2001:db8::1]:10911"}}, 2)
    woken = msgpack.unpackb((await outside.response_to(watch)).body, strict_map_key=False)
    assert woken["routes"]["T"]["broker_datas"][0]["broker_addrs"] == {0: "[2001:db8::1]:10911"}

    await advertise(inside, MASTER, None, 3)
    assert await shown(outside) == {"0": MASTER.addr}


async def test_broker_that_changes_its_cluster_keeps_its_advertised_addresses(server: InProcess) -> None:
    """The group keeps the name of its first cluster, where another broker has the same address."""
    inside, outside = await server.connect(), await server.connect(source="127.0.0.2")
    await advertise(inside, MASTER)
    await advertise(inside, MASTER._replace(cluster="cluster-2"), {"broker_addr": {"outside": "203.0.113.9:1"}}, 2)
    await advertise(inside, Broker("broker-z"), {"broker_addr": {"outside": "203.0.113.10:1"}}, 3)
    assert await shown(outside) == {"0": "203.0.113.9:1"}

    await advertise(inside, MASTER, None, 4)
    assert await shown(outside) == {"0": MASTER.addr}


async def test_repeated_registration_changes_no_route(server: InProcess) -> None:
    """Clients are not woken by a broker that advertises the same addresses again."""
    peer = await server.connect()
    await advertise(peer, MASTER)
    revision = server.namesrv.manager.revisions.revision

    body = native_registration("T", "U", advertised=ADVERTISED, counter=1)
    await peer.register(MASTER, body, spelling="native", agentId="agent", registrationSeq="2", kind="delta")

    assert server.namesrv.manager.revisions.revision == revision


WRONG = "is not a host and port (for example 203.0.113.7:30911)"


@pytest.mark.parametrize(
    ("advertised", "remark"),
    [
        (
            {"broker_addr": {"outside": "203.0.113.7"}},
            f"advertised.broker_addr: view outside: '203.0.113.7' {WRONG}",
        ),
        ({"ha_server_addr": {"outside": "a b:1"}}, f"advertised.ha_server_addr: view outside: 'a b:1' {WRONG}"),
        ({"broker_addr": {"": "h:1"}}, "advertised.broker_addr: name of a view of 0 characters: must be 1 to 255"),
        ({"broker_addr": {"x" * 256: "h:1"}}, "advertised.broker_addr: name of a view of 256 characters: "),
        ({"broker_addr": {str(number): "h:1" for number in range(17)}}, "advertised.broker_addr: 17 views, limit 16"),
        ({"broker_addr": {"outside": 1}}, "body of REGISTER_BROKER cannot be read: expected `str`, got `int`"),
        ({"broker_addr": {"outside": "h" * 33_000}}, "body of REGISTER_BROKER"),
    ],
)
async def test_bad_addresses_are_refused(server: InProcess, advertised: object, remark: str) -> None:
    """The remark names member, view and value, and the earlier registration stays."""
    peer, outside = await server.connect(), await server.connect(source="127.0.0.2")
    await advertise(peer, MASTER)

    response = await advertise(peer, MASTER, advertised, 2)

    assert response.code == 1
    assert (response.remark or "").lower().startswith(remark.lower())
    assert await shown(outside) == {"0": "203.0.113.7:30911"}


async def test_view_that_the_file_lacks_is_logged_once(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """The address is harmless; a repeated registration does not repeat the warning."""
    peer = await server.connect()
    for seq in (1, 2):
        await advertise(peer, MASTER, {"broker_addr": {"nowhere": "h:1", "outside": "h:2"}}, seq)

    (event,) = logged(caplog, "advertised_views_unknown")
    assert (event["broker_name"], event["views"]) == ("broker-a", ["nowhere"])
    assert await shown(peer) == {"0": MASTER.addr}


async def test_operators_see_both_addresses(server: InProcess) -> None:
    """20005 has the registered address and what the broker advertises; None for a broker that advertises nothing."""
    peer = await server.connect(source="127.0.0.2")
    await advertise(peer, MASTER)
    await peer.register(SLAVE)

    listed = msgpack.unpackb((await peer.call(RequestCode.LIST_BROKERS, spelling="native")).body)["brokers"]

    assert [(broker["broker_addr"], broker["advertised"]) for broker in listed] == [
        (MASTER.addr, ADVERTISED),
        (SLAVE.addr, None),
    ]


NARROW = '[accounts.b]\nnetworks = ["127.0.0.1"]\nmay = [{access = "broker-control", broker_addresses = %s}]\n'


async def test_account_may_advertise_only_addresses_that_it_may_register(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a broker could send the clients of a view to any address; a reload revokes earlier registrations."""
    caplog.set_level(logging.WARNING)
    async with guarded_namesrv(tmp_path, NARROW % '["10.0.0.0/8", "203.0.113.7:30911"]') as server:
        peer = await server.connect()
        inside = {"broker_addr": {"inside": "10.0.0.9:10911"}}
        allowed = await advertise(peer, MASTER, inside | {"ha_server_addr": {"outside": "203.0.113.7:30911"}})
        refused = await advertise(peer, MASTER, inside | {"ha_server_addr": {"outside": "203.0.113.7:30912"}}, 2)
        assert (allowed.code, refused.code) == (0, 16)
        assert refused.remark == (
            "account b lacks broker-control for cluster cluster-1, broker broker-a, address 203.0.113.7:30912 "
            "(REGISTER_BROKER)"
        )

        await server.reload_access(NARROW % '["10.0.0.0/8"]')
        await until(lambda: not server.namesrv.manager.tables.broker_live_table)

    (event,) = logged(caplog, "registration_revoked")
    assert event["reason"] == "account b lacks broker-control for advertised address 203.0.113.7:30911"
