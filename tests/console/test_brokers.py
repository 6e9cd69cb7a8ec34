"""The pages of brokers: ages on each server, tags, and hostile names."""

import html
import re
from pathlib import Path

import pytest

from namesrv_console.state import BrokerKey
from tests.support.console import Shown, console
from tests.support.fake_clock import passing
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, Broker, native, native_registration

HOSTILE = [
    "<script>alert(1)</script>",
    "\"onmouseover='x'",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "{{ 7 * 7 }}<!--row-->",
]


def words(page: str) -> str:
    """The text of a page, with the labels of pictures."""
    text = re.sub(r"<style>.*?</style>", " ", page, flags=re.DOTALL)
    text = re.sub(r'<svg[^>]* aria-label="([^"]*)"[^>]*>', r" \1 ", text)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


async def seen(server: InProcess, shown: Shown, broker: Broker) -> None:
    """Move the clock until the console knows a broker."""
    await passing(
        server.clock, lambda: any(key[1:] == broker[:2] for key in shown.console.observed.cluster.broker_keys)
    )


async def test_broker_page_shows_age_and_expiry(tmp_path: Path) -> None:
    """The age is by the server's monotonic clock; the reported state and addresses stand beside it."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        advertised = {"broker_addr": {"outside": "h:1"}, "ha_server_addr": {"outside": "h:2"}}
        body = native_registration("T", advertised=advertised)
        await peer.register(MASTER, body, spelling="native", agentId="agent-1")
        await peer.call(904, MASTER.ext, native({"state": {"disk": 0.5}}), spelling="native")
        await seen(server, shown, MASTER)
        began = shown.console.observed.cluster.servers[0].brokers[BrokerKey("cluster-1", "broker-a", 0)].last_seen_at
        assert began is not None
        await server.clock.advance(14.9 - (server.clock.monotonic() - began))

        every = words(await shown.text("/brokers"))
        one = words(await shown.text("/broker?cluster=cluster-1&name=broker-a"))
        for page in (every, one):
            assert "seen 14.9 s ago, expires in 1 m 45 s" in page
            assert "10.0.0.1:10911" in page
        assert "10.0.0.1:10911 outside h:1 outside HA h:2" in one
        assert "disk 0.5" in one


@pytest.mark.parametrize(("code", "tag"), [(205, "write permission removed"), (None, "drained")])
async def test_removed_write_permission_and_draining_differ(code: int | None, tag: str, tmp_path: Path) -> None:
    """An operator removed the write permission, or the broker registered all topics read-only before it leaves."""
    perm = 6 if code else 4
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        topic = {"topic_name": "T", "read_queue_nums": 8, "write_queue_nums": 8, "perm": perm, "topic_sys_flag": 0}
        await peer.register(MASTER, native_registration(topic), spelling="native")
        if code:
            await peer.call(code, {"brokerName": MASTER.name})
        await seen(server, shown, MASTER)
        await server.clock.advance(2.0)

        page = words(await shown.text("/brokers"))
        assert [word for word in ("write permission removed", "drained") if word in page] == [tag]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_text(name: str, tmp_path: Path) -> None:
    """A hostile name adds no element, attribute or control character, on any page and in any live part."""
    broker = Broker(name=name, cluster=name[:20])
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        await peer.register(broker, native_registration("T"), spelling="native")
        await seen(server, shown, broker)
        tab = shown.tab("/brokers")
        await passing(server.clock, lambda: "tree" in tab.parts)
        overview = await shown.text("/")
        link = re.findall(r'href="(/broker\?[^"]*)"', overview)[0]

        for page in (overview, await shown.text("/brokers"), await shown.text(html.unescape(link)), tab.parts["tree"]):
            assert re.findall(r"<script(?! type=\"module\" src=\"/static/)", page) == []
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", page)
            assert not re.search(r"<[^>]*\son\w+=", page)
            assert "{{ 7 * 7 }}" not in name or "7 * 7" in page
        shown_name = name.encode("unicode_escape").decode() if not name.isprintable() else name
        assert shown_name in words(tab.parts["tree"])
        tab.leave()
