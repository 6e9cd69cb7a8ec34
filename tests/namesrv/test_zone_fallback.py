"""Clients of a zone get brokers of other zones when their own has too few, in every protocol."""

from pathlib import Path

import pytest

from namesrv.server.reload import Reloader
from namesrv.settings.flags import parse
from namesrv.settings.sources import load
from tests.support.ctl import at, ctl
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import SPELLINGS, Broker, NamesrvPeer, Spelling, native, registration

EAST, WEST = Broker("broker-a", 0, "10.0.0.1:10911"), Broker("broker-b", 0, "10.0.0.2:10911")


async def broker(server: InProcess, broker: Broker, zone: str) -> NamesrvPeer:
    """A broker of a zone, on a connection of its own."""
    peer = await server.connect()
    await peer.register(broker, registration("orders", "bills"), __ZONE_NAME=zone)
    return peer


async def names(peer: NamesrvPeer, spelling: Spelling) -> list[str]:
    """The brokers of the route that a client of zone east gets."""
    zone = {"topic": "orders", "__ZONE_MODE": "true", "__ZONE_NAME": "East"}
    route = (await peer.call(105, zone, spelling=spelling)).java_value
    return [group["brokerName"] for group in route["brokerDatas"]]


async def pulled_names(peer: NamesrvPeer) -> list[str]:
    """The same by PULL_ROUTES."""
    response = await peer.call(20001, None, native({"topics": ["orders"], "zone": "EAST"}), spelling="native")
    return [group["broker_name"] for group in response.value["routes"]["orders"]["broker_datas"]]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_route_spills_over_while_the_zone_has_no_master(tmp_path: Path, spelling: Spelling) -> None:
    """Without a rule the route becomes empty, as with Apache's server; fast path and dispatcher agree."""
    for rules, left in (("", []), ("*", ["broker-b"])):
        async with namesrv_in_process(tmp_path / (rules or "none"), zone_fallback=rules) as server:
            own, client = await broker(server, EAST, "east"), await server.connect()
            await broker(server, WEST, "west")
            for _ in range(2):
                assert (await names(client, spelling), await pulled_names(client)) == (["broker-a"], ["broker-a"])
            await own.call(104, EAST.ext)
            for _ in range(2):
                assert (await names(client, spelling), await pulled_names(client)) == (left, left)
            await own.register(EAST, registration("orders", "bills"), __ZONE_NAME="east")
            assert (await names(client, spelling), await pulled_names(client)) == (["broker-a"], ["broker-a"])


async def test_reload_changes_the_rules(tmp_path: Path) -> None:
    """Cached routes follow the new rules, and an invalid rule changes nothing."""
    file = tmp_path / "namesrv.toml"
    file.touch()
    async with namesrv_in_process(tmp_path / "data") as server:
        reloader = Reloader(server.namesrv, lambda: load(parse(["--config", str(file)]), {}))
        client = await server.connect()
        await broker(server, WEST, "west")
        found = [await names(client, "json")]
        for rules in ("east>west", "west", ""):
            file.write_text(f'zone_fallback = "{rules}"\n', encoding="utf-8")
            await reloader.reload()
            found.append(await names(client, "json"))

    assert found == [[], ["broker-b"], ["broker-b"], []]


async def test_ctl_explains_the_zones_of_a_route(tmp_path: Path) -> None:
    """The lines name each zone with its masters and write queues, and the rule."""
    async with namesrv_in_process(tmp_path, zone_fallback="east>west;write-queues=4") as server:
        await broker(server, WEST, "west")
        spilt = await ctl(*at(server), "route", "orders", "--zone", "east", "--explain")
        own = await ctl(*at(server), "route", "orders", "--zone", "west", "--explain")
        plain = await ctl(*at(server), "route", "orders", "--explain")

    rule = "(zone-fallback adds zones below 1 master and 4 write queues)"
    line = f"{server.where}: topic orders: zone"
    found = f"{line} east: 0 masters, 0 write queues; with zone west: 1 master, 8 write queues {rule}"
    assert (spilt.code, spilt.cells[1][2], spilt.problems) == (0, "broker-b", [found])
    assert own.problems == [f"{line} west: 1 master, 8 write queues {rule}"]
    assert (plain.code, "needs --zone" in plain.err) == (2, True)


VIEW = """
[[views]]
name = "outside"
networks = ["127.0.0.2"]
others = "hide"
[[views.brokers]]
broker_names = ["broker-b"]
shown = "{broker_name}.example.com:{port}"
"""


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("rules", "left"), [("", []), ("east>west", ["broker-b"])])
async def test_brokers_that_the_view_hides_do_not_count(
    tmp_path: Path, spelling: Spelling, rules: str, left: list[str]
) -> None:
    """The only master of the zone is hidden: the route of a client with the view spills over, in every response."""
    views = tmp_path / "views.toml"
    views.write_text(VIEW, encoding="utf-8")
    async with namesrv_in_process(tmp_path, address_views=str(views), zone_fallback=rules) as server:
        await broker(server, EAST, "east")
        await broker(server, WEST, "west")
        client = await server.connect(source="127.0.0.2")
        for _ in range(3):
            assert (await names(client, spelling), await pulled_names(client)) == (left, left)
