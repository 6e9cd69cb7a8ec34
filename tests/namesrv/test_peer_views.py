"""Address views in responses: a peer on another network gets addresses that it can reach, in every response."""

import json
from pathlib import Path
from typing import Any

import msgpack
import pytest

from namesrv_remoting.codes import RequestCode
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, SLAVE, Broker, NamesrvPeer, Spelling, native

VIEWS = """
[[views]]
name = "outside"
networks = ["127.0.0.2"]
others = "hide"
[[views.brokers]]
registered = ["10.0.0.0/16"]
shown = "{broker_name}-{broker_id}.mq.example.com:{port+20000}"
"""
HIDDEN = Broker("broker-z", 0, "192.168.0.1:10911")
OUTSIDE = {"0": "broker-a-0.mq.example.com:30911", "1": "broker-a-1.mq.example.com:30911"}
INSIDE = {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}


def views_file(directory: Path, text: str = VIEWS) -> Path:
    """A file with views."""
    path = directory / "views.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def settings(settings: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Settings of a server with the view."""
    return {"address_views": str(views_file(tmp_path)), **settings}


@pytest.fixture
async def inside(server: InProcess) -> NamesrvPeer:
    """A peer without a view."""
    return await server.connect()


@pytest.fixture
async def outside(server: InProcess) -> NamesrvPeer:
    """A peer with the view."""
    return await server.connect(source="127.0.0.2")


async def register_three(peer: NamesrvPeer) -> None:
    """Register a master with its slave, and a broker that the view hides."""
    for broker in (MASTER, SLAVE, HIDDEN):
        await peer.register(broker)


def addresses(route: bytes, spelling: Spelling) -> dict[str, dict[str, str]]:
    """The broker addresses in a route, by broker name."""
    if spelling == "native":
        groups = msgpack.unpackb(route, strict_map_key=False)["broker_datas"]
        return {
            group["broker_name"]: {str(number): addr for number, addr in group["broker_addrs"].items()}
            for group in groups
        }
    return {group["brokerName"]: group["brokerAddrs"] for group in json.loads(route)["brokerDatas"]}


async def test_routes_have_addresses_of_the_view(
    server: InProcess, inside: NamesrvPeer, outside: NamesrvPeer, spelling: Spelling
) -> None:
    """Repeated requests, which the fast path answers, have the same addresses as the first one."""
    await register_three(inside)
    for _ in range(3):
        seen = await outside.call(105, {"topic": "T"}, spelling=spelling)
        assert addresses(seen.body, spelling) == {"broker-a": OUTSIDE}
        seen = await inside.call(105, {"topic": "T"}, spelling=spelling)
        assert addresses(seen.body, spelling) == {"broker-a": INSIDE, "broker-z": {"0": HIDDEN.addr}}
    assert server.namesrv.fast_path.pulls == (0 if spelling == "binary" else 5)


async def test_view_of_a_listener(tmp_path: Path) -> None:
    """Peers that connect to the named port get its view, in each connection and request."""
    views = views_file(tmp_path, VIEWS.replace('networks = ["127.0.0.2"]', 'listeners = ["outside"]'))
    async with namesrv_in_process(tmp_path, address_views=str(views), listeners="outside=0") as server:
        inside, outside = await server.connect(), await server.connect(listener=1)
        await inside.register(MASTER)
        for peer, expected in ((outside, OUTSIDE["0"]), (inside, INSIDE["0"])) * 2:
            response = await peer.call(105, {"topic": "T"})
            assert addresses(response.body, "json") == {"broker-a": {"0": expected}}


async def test_clusters_and_member_groups_have_addresses_of_the_view(inside: NamesrvPeer, outside: NamesrvPeer) -> None:
    """106 and 901 leave out hidden brokers."""
    await register_three(inside)
    clusters = json.loads((await outside.call(106)).body)
    assert clusters["clusterAddrTable"] == {"cluster-1": ["broker-a"]}
    assert clusters["brokerAddrTable"]["broker-a"]["brokerAddrs"] == OUTSIDE
    group = await outside.call(901, {"clusterName": "cluster-1", "brokerName": "broker-a"})
    assert json.loads(group.body)["brokerMemberGroup"]["brokerAddrs"] == OUTSIDE
    hidden = await outside.call(901, {"clusterName": "cluster-1", "brokerName": "broker-z"})
    assert json.loads(hidden.body)["brokerMemberGroup"]["brokerAddrs"] == {}


@pytest.mark.settings(support_acting_master=True)
async def test_acting_master_has_the_address_of_its_own_id(
    inside: NamesrvPeer, outside: NamesrvPeer, spelling: Spelling
) -> None:
    """A slave that acts as the master is shown under id 0, with the address that the view gives to its own id."""
    await inside.register(SLAVE, enableActingMaster="true")
    for _ in range(2):
        seen = await outside.call(105, {"topic": "T"}, spelling=spelling)
        assert addresses(seen.body, spelling) == {"broker-a": {"0": OUTSIDE["1"]}}


@pytest.mark.settings(support_acting_master=True)
async def test_no_other_slave_is_shown_as_master_while_the_view_hides_the_acting_master(
    inside: NamesrvPeer, outside: NamesrvPeer
) -> None:
    """The slave with the next id does not act as the master, and keeps its id."""
    await inside.register(HIDDEN._replace(name="broker-a", id=1), enableActingMaster="true")
    await inside.register(SLAVE._replace(id=2), enableActingMaster="true")

    seen = await outside.call(105, {"topic": "T"})
    assert addresses(seen.body, "json") == {"broker-a": {"2": "broker-a-2.mq.example.com:30911"}}


async def test_list_of_system_topics_has_an_address_of_the_view(inside: NamesrvPeer, outside: NamesrvPeer) -> None:
    """Tools connect to the address in the list (304): it is that of the first broker by name that the view shows."""
    hidden = HIDDEN._replace(name="broker-0")
    await inside.register(hidden)
    assert json.loads((await outside.call(304)).body) == {"topicList": ["broker-0", "cluster-1"]}
    await inside.register(MASTER)

    assert json.loads((await outside.call(304)).body)["brokerAddr"] == OUTSIDE["0"]
    assert json.loads((await inside.call(304)).body)["brokerAddr"] == hidden.addr


async def test_slave_outside_reaches_its_master(inside: NamesrvPeer, outside: NamesrvPeer) -> None:
    """The master and HA address in the response to a slave's registration are those of the slave's view."""
    await inside.register(MASTER, haServerAddr="10.0.0.1:10912")

    response = await outside.register(SLAVE, haServerAddr="10.0.0.2:10912")

    assert (response.fields["masterAddr"], response.fields["haServerAddr"]) == (
        "broker-a-0.mq.example.com:30911",
        "broker-a-0.mq.example.com:30912",
    )


async def test_topic_without_a_visible_broker_has_no_route(inside: NamesrvPeer, outside: NamesrvPeer) -> None:
    """All brokers of the topic are hidden: the response is that for an unknown topic."""
    await inside.register(HIDDEN)

    assert [(await outside.call(105, {"topic": "T"})).code for _ in range(2)] == [17, 17]


async def test_reload_changes_addresses_and_wakes_watches(
    server: InProcess, inside: NamesrvPeer, outside: NamesrvPeer, tmp_path: Path
) -> None:
    """After a reload, all responses and waiting watches have the new addresses; a bad file changes nothing."""
    path = tmp_path / "views.toml"
    await register_three(inside)
    # The dispatcher responds first, then the fast path.
    for _ in range(2):
        seen = await outside.call(105, {"topic": "T"})
        assert addresses(seen.body, "json")["broker-a"] == OUTSIDE
    assert repr(server.namesrv.routes.encoded) == "<EncodedRoutes [registered addresses, outside]>"
    reloader = server.reloader(f"--address-views={path}")
    pull = {"topics": ["T"], "boot_id": server.namesrv.boot.id, "wait_ms": 60_000}
    first = await outside.call(
        RequestCode.PULL_ROUTES, None, native({**pull, "since": 0, "wait_ms": 0}), spelling="native"
    )
    since = msgpack.unpackb(first.body, strict_map_key=False)["revision"]
    watch = outside.send_request(RequestCode.PULL_ROUTES, None, native({**pull, "since": since}), spelling="native")

    path.write_text("views = 1", encoding="utf-8")
    await reloader.reload()
    assert server.namesrv.counters.is_reload_refused
    views_file(tmp_path, VIEWS.replace("example.com", "example.org"))
    await reloader.reload()

    woken = msgpack.unpackb((await outside.response_to(watch)).body, strict_map_key=False)
    (group,) = woken["routes"]["T"]["broker_datas"]
    assert group["broker_addrs"][0] == "broker-a-0.mq.example.org:30911"
    seen = await outside.call(105, {"topic": "T"})
    assert addresses(seen.body, "json")["broker-a"]["0"] == "broker-a-0.mq.example.org:30911"
    await server.reloader("--address-views=").reload()
    seen = await outside.call(105, {"topic": "T"})
    assert addresses(seen.body, "json")["broker-a"] == INSIDE
    assert repr(server.namesrv.routes.encoded) == "<EncodedRoutes [registered addresses]>"
    assert server.namesrv.fast_path.pulls == 3


@pytest.mark.parametrize(("account", "shown"), [("inner", INSIDE), ("outer-1", OUTSIDE)])
async def test_view_of_an_account(tmp_path: Path, account: str, shown: dict[str, str]) -> None:
    """A view by account is for the requests of that account, and for notices to its brokers, over any connection."""
    access = tmp_path / "access.toml"
    access.write_text(f'[accounts.{account}]\nnetworks = ["127.0.0.0/8"]\nmay = ["route-read", "broker-control"]\n')
    path = views_file(tmp_path, VIEWS.replace('networks = ["127.0.0.2"]', 'accounts = ["outer-*"]'))
    settings: dict[str, Any] = {"address_views": str(path), "access": str(access), "notify_min_broker_id_changed": True}
    async with namesrv_in_process(tmp_path, **settings) as server:
        peer, slave = await server.connect(), await server.connect()
        await slave.register(SLAVE, spelling="native", enableActingMaster="true")
        await peer.register(MASTER, enableActingMaster="true")
        assert ((await slave.receive()).ext_fields or {})["minBrokerAddr"] == shown["0"]
        for _ in range(3):
            seen = await peer.call(105, {"topic": "T"})
            assert addresses(seen.body, "json") == {"broker-a": shown}
