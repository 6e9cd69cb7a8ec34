"""Live updates of open tabs, and their cost for the NameServers."""

from pathlib import Path

from tests.support.apache_server import ApacheFront
from tests.support.console import console
from tests.support.ctl import address_of
from tests.support.fake_clock import FakeClock, passing
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, Broker


async def test_a_tab_that_was_away_gets_what_it_missed_and_no_more(tmp_path: Path) -> None:
    """A tab continues from Last-Event-ID or its page's revision; after a restart of the console it gets all parts."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        await peer.register(MASTER)
        stays, leaves = shown.tab("/brokers"), shown.tab("/brokers")
        await passing(server.clock, lambda: "broker-a" in leaves.parts.get("tree", ""))
        seen = leaves.messages[-1].id
        leaves.leave()
        await peer.register(OTHER)
        await passing(server.clock, lambda: "broker-b" in stays.parts["tree"])

        # A window without a stream polls.
        asked = await shown.http.get("/live", params={"of": "/brokers", "since": seen, "once": "1"})
        assert {"tree", stays.messages[-1].id} <= {asked.json()["id"], *dict(asked.json()["parts"])}
        again = [shown.tab("/brokers", last_event_id=seen), shown.tab("/brokers", since=stays.messages[-1].id)]
        strange = shown.tab("/brokers", last_event_id="0-3")
        await passing(server.clock, lambda: all(tab.messages for tab in (*again, strange)))

        assert "broker-b" in again[0].messages[0].parts["tree"]
        assert again[1].messages[0].parts == {}
        assert {"chips", "tree"} <= set(strange.messages[0].parts)
        for tab in (stays, *again, strange):
            tab.leave()


async def test_open_page_shows_a_value_that_was_set_elsewhere() -> None:
    """An Apache server reports nothing that changes with a KV value: an open page requests its values again."""
    clock = FakeClock()
    async with ApacheFront(("127.0.0.1", 1)) as apache, console(clock, address_of(apache)) as shown:
        apache.remarks[105] = "No topic route info"
        apache.bodies[106] = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
        apache.bodies[206] = b'{"topicList":[]}'
        apache.bodies[219] = b'{"table":{}}'
        tab = shown.tab("/kv?namespace=ns")
        await passing(clock, lambda: "No server has keys" in tab.parts.get("kv", ""))
        await clock.advance(10)

        apache.bodies[219] = b'{"table":{"k":"set-elsewhere"}}'
        await passing(clock, lambda: "set-elsewhere" in tab.parts["kv"], at_most=10.0)
        tab.leave()


async def test_broker_that_left_is_in_the_last_quarter_of_an_hour(tmp_path: Path) -> None:
    """Without logs, the overview and the page of the broker show when and why it left."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        await peer.register(MASTER)
        tabs = [shown.tab("/"), shown.tab("/broker?cluster=cluster-1&name=broker-a")]
        await passing(server.clock, lambda: all('class="registered"' in tab.parts.get("recent", "") for tab in tabs))

        await server.hang_up(peer)
        await passing(server.clock, lambda: all('class="mark disconnected"' in tab.parts["recent"] for tab in tabs))
        for tab in tabs:
            tab.leave()


async def test_a_heartbeat_sends_one_row(tmp_path: Path) -> None:
    """Of a hundred brokers only the row with a new heartbeat is sent, and nothing without heartbeats."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        peer = await server.connect()
        brokers = [Broker(f"broker-{n:03}", 0, f"10.0.1.{n}:10911") for n in range(100)]
        for broker in brokers:
            await peer.register(broker)
        tab = shown.tab("/brokers")
        await passing(server.clock, lambda: "broker-099" in tab.parts.get("tree", ""))
        await server.clock.advance(5.0)
        tab.messages.clear()
        await server.clock.advance(10.0)
        assert tab.parts == {}

        await peer.call(904, brokers[42].ext)
        await passing(server.clock, lambda: tab.parts)

        [(name, row)] = tab.parts.items()
        assert name == "broker-43"
        assert "broker-042" in row
        tab.leave()


async def test_a_tab_that_does_not_read_is_dropped(tmp_path: Path) -> None:
    """Updates for a tab that does not read are not kept in memory."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        slow, other = shown.tab("/"), shown.tab("/")
        await passing(server.clock, lambda: slow.messages and other.messages)
        slow.reads.clear()
        await passing(server.clock, lambda: shown.app.state.live.streams == 1, at_most=20.0)
        count = len(other.messages)
        await passing(server.clock, lambda: len(other.messages) > count)
        slow.reads.set()
        other.leave()


async def test_event_id_without_a_revision_is_an_unknown_one() -> None:
    """Whatever a client sends as the last event id, its tab receives the whole page."""
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        event_id = (await shown.http.get("/live", params={"of": "/", "once": "1"})).json()["id"]
        run = event_id.partition("-")[0]
        for since in (f"{run}-{'9' * 5000}", f"{run}-\u0663", f"{run}-", "x", ""):
            answer = await shown.http.get("/live", params={"of": "/", "once": "1", "since": since})
            assert (answer.status_code, len(answer.json()["parts"])) == (200, 8), since[:20]


async def test_stream_of_an_unknown_page_is_not_found() -> None:
    """Also of a file, and of a page whose name is not a URL."""
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        for page in ("/nowhere", "//[", "/diff.json", "/strip.svg"):
            assert (await shown.http.get("/live", params={"of": page})).status_code == 404
