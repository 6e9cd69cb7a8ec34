"""The pages about topics, differences, clients and settings, over servers that disagree."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from namesrv_console.app import PAGES
from namesrv_console.pages.search import Hit, search
from namesrv_console.state import TopicReport
from tests.support.console import Shown, console, console_of_two
from tests.support.ctl import refusing_address
from tests.support.fake_clock import FakeClock, passing, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, SLAVE, registration, topic_config

# The escaped form of a hostile name, and the raw form.
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


class Scene(NamedTuple):
    """Two servers and a console of both."""

    one: InProcess
    other: InProcess
    shown: Shown

    async def page(self, path: str) -> str:
        """The words of a page, without its tags."""
        html = await self.shown.text(path)
        main = html[html.index("<h1>") : html.index("</main>")]
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", main))


@asynccontextmanager
async def scene(tmp_path: Path, *others: str, **of_other: Any) -> AsyncIterator[Scene]:
    """Broker a is on both servers; b, and the topic U, are on the first alone; `others` are further addresses."""
    clock = FakeClock()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(namesrv_in_process(tmp_path / "1", clock=clock))
        other = await stack.enter_async_context(namesrv_in_process(tmp_path / "2", clock=clock, **of_other))
        await (await one.connect()).register(MASTER, registration("T", "U", "TBW102"))
        await (await one.connect()).register(OTHER, registration("T", HOSTILE))
        await (await other.connect()).register(MASTER, registration("T", "TBW102"))
        shown = await stack.enter_async_context(console(clock, one.where, other.where, *others))
        await passing(
            clock, lambda: all(view.topic_report.topics for view in shown.console.observed.cluster.servers[:2])
        )
        yield Scene(one, other, shown)


async def test_lack_is_expected_at_first_and_then_alarms(tmp_path: Path) -> None:
    """A broker registers with one server after another: at first no page but the differences calls it missing."""
    soon, topics = "expected to change soon", "/topics?show=differing&sort=brokers&descending=1"
    async with scene(tmp_path) as it:
        other = it.other.where
        # Path -> texts at first, and after the time in which brokers register.
        texts = {
            topics: (
                [f"U ordinary 1 8 8 RW- {other}: {soon}", f"T ordinary 2 16 16 RW- {soon}"],
                [f"U ordinary 1 8 8 RW- missing on {other}", "T ordinary 2 16 16 RW- disagree"],
            ),
            "/topic?name=T": (["8/8 RW- 0 seen 0.", soon], ["MISSING", "register"]),
            "/topic?name=U": ([f"{other}: {soon}", soon], [f"Missing on {other}.", "NO TOPIC"]),
            "/brokers": ([soon], ["broker-b master cluster-1 10.0.0.3:10911 MISSING"]),
            "/diff": (["expected: the server has just started"], ["Differences: 4, unexpected: 4"]),
        }
        first = {path: await it.page(path) for path in texts}
        assert 'class="bad"' not in await it.shown.text("/topics")
        await it.one.clock.advance(40)
        then = {path: await it.page(path) for path in texts}

    for path, (at_first, later) in texts.items():
        assert [text for text in at_first if text not in first[path]] == []
        assert [text for text in later if text not in then[path]] == []
    assert [path for path in first if path != "/diff" and re.search("MISSING|NO TOPIC|missing on", first[path])] == []


async def test_topic_that_no_server_has_is_named(tmp_path: Path) -> None:
    """An unknown topic is not found, and the page without a name leads to the list."""
    async with scene(tmp_path) as it:
        assert "No topic matches." in await it.page("/topics?q=nothing-like-it&page=x&sort=x&show=x")
        assert "No server has this topic." in await it.page("/topic?name=none")
        unnamed = [await it.shown.http.get(path) for path in ("/topic", "/topic?name=")]
        html = await it.shown.text("/topics")

    assert [(one.status_code, one.headers.get("location")) for one in unnamed] == [(303, "/topics")] * 2
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x1b[31m" in html


async def test_servers_without_topics_have_none_that_could_match(tmp_path: Path) -> None:
    """A list that is empty without a filter does not look like the result of one."""
    async with console_of_two(tmp_path) as (one, _, shown):
        await passing(one.clock, lambda: all(view.reports_topics for view in shown.console.observed.cluster.servers))
        empty = await shown.text("/topics")

    assert "No topic is registered." in empty


async def test_stars_come_from_the_browser(tmp_path: Path) -> None:
    """A starred topic is the first row, also after a live update."""
    async with scene(tmp_path) as it:
        it.shown.http.cookies.set("stars", "U")
        html = await it.shown.text("/topics")

        assert re.findall(r'data-star="([UT])"', html) == ["U", "T"]
        assert len(re.findall(r'<button class="star"[^>]* aria-pressed="true"', html)) == 1


async def test_starting_server_is_not_blamed_for_an_unexpected_difference(tmp_path: Path) -> None:
    """One server lacks a broker unexpectedly; a third server, which has just started, is expected to get it soon."""
    async with namesrv_in_process(tmp_path / "3") as starting, scene(tmp_path, starting.where) as it:
        await it.one.clock.advance(40)

        assert f"broker cluster-1/broker-b/0 : missing on {it.other.where} " in await it.page("/")
        words = await it.page("/diff")
        assert "broker cluster-1/broker-b/0 present MISSING expected to change soon" in words


async def test_starting_server_to_which_a_slave_comes_first_lacks_no_master(tmp_path: Path) -> None:
    """The master of the other server is expected: neither the verdict nor a page names a group without a master."""
    async with scene(tmp_path) as it:
        slave = OTHER._replace(id=1, addr="10.0.0.4:10911")
        for server in (it.one, it.other):
            await (await server.connect()).register(slave, registration("T", HOSTILE))
        observed = it.shown.console.observed
        await passing(it.one.clock, lambda: all(len(view.brokers) > 1 for view in observed.cluster.servers))
        for path in ("/", "/topic?name=T", "/brokers"):
            html = await it.shown.text(path)
            assert ('class="verdict good"' in html, re.findall("(?i)no master", html)) == (True, [])

        await it.one.clock.advance(40)
        assert "cluster-1/broker-b : no master is registered" in await it.page("/")
        assert "No master" in await it.page("/topic?name=T")


async def test_addresses_of_one_server_do_not_agree(tmp_path: Path) -> None:
    """Two addresses of one server are no two servers: that they agree says nothing."""
    async with namesrv_in_process(tmp_path) as server:
        other = server.where.replace("127.0.0.1", "localhost")
        async with console(server.clock, server.where, other) as shown:
            await passing(server.clock, lambda: shown.console.observed.cluster.compared == 2)
            pages = [await shown.text(path) for path in ("/", "/diff")]
            alone = await shown.text(f"/diff?{urlencode({f'with:{other}': 1})}")
            exported = (await shown.http.get("/diff.json")).json()

    notice = f"Addresses of the same server, which agrees with itself: {server.where}, {other}"
    assert [(page.count(notice), re.findall("[^ ]* agree\\b", page)) for page in pages] == [(1, []), (1, [])]
    assert notice not in alone
    assert exported["same"] is False


async def test_differences_and_reasons_are_in_the_language_of_the_page(tmp_path: Path) -> None:
    """A Chinese page names facts, queues and reasons of removals in Chinese, an English page in English."""
    async with scene(tmp_path) as it:
        await (await it.other.connect()).register(OTHER, registration(topic_config("T", read=4, flags=2), HOSTILE))
        peer = await it.one.connect()
        await peer.register(SLAVE, registration("T", "U"))
        observed = it.shown.console.observed
        await passing(it.one.clock, lambda: len(observed.cluster.servers[0].brokers) == 3)
        await passing(it.one.clock, lambda: len(observed.cluster.servers[1].topic_report.routes["T"].queue_datas) == 2)
        await it.one.hang_up(peer)
        await passing(it.one.clock, lambda: len(observed.cluster.servers[0].brokers) == 2)
        english = await it.page("/diff") + await it.page("/")
        it.shown.http.cookies.set("language", "zh")
        chinese = await it.page("/diff") + await it.page("/")

        texts = {
            "queues on broker-b": "broker-b 上的队列",
            "4 read, 8 write, RW-": "读 4",
            "flags 2": "标志 2",
            "(connection closed)": "(连接已关闭)",
        }
        assert [(text in english, other in chinese) for text, other in texts.items()] == [(True, True)] * 4
        assert [text for text in (*texts, "disconnected") if text in chinese] == []


async def test_fixed_reasons_of_servers_are_in_the_language_of_the_page(tmp_path: Path) -> None:
    """The reasons for which a server has no brokers, and is not ready, are Chinese on a Chinese page."""
    async with console_of_two(tmp_path) as (one, two, shown):
        two.namesrv.boot.is_draining = True
        await passing(
            one.clock, lambda: all(view.info for view in shown.console.observed.cluster.servers), at_most=60.0
        )
        english = await shown.text("/")
        shown.http.cookies.set("language", "zh")
        chinese = await shown.text("/")

    texts = [
        ("each broker needs this server in its list of NameServers (namesrvAddr)", "都须包含该服务器"),
        ("(draining)", "(正在下线)"),
    ]
    assert [(text in english, text in chinese, other in chinese) for text, other in texts] == [(True, False, True)] * 2


async def test_differences_are_exported(tmp_path: Path) -> None:
    """The file has the values on each server; a server agrees with itself."""
    async with scene(tmp_path) as it:
        found = (await it.shown.http.get("/diff.json")).json()
        alone = (await it.shown.http.get("/diff.json", params={f"with:{it.one.where}": "1"})).json()

    assert [found["differences"][0][name] for name in ("kind", "name", "fact")] == [
        "broker",
        "cluster-1/broker-b/0",
        "present",
    ]
    queues = {one["fact"]: one["values"] for one in found["differences"] if one["name"] == "T"}
    assert queues == {"queues on broker-b": {it.one.where: "8 read, 8 write, RW-", it.other.where: None}}
    assert (found["same"], alone["differences"]) == (False, [])


async def test_server_whose_topics_are_not_read_yet_is_not_compared(tmp_path: Path) -> None:
    """A server's topics are read after its brokers, for many topics seconds later: until then nothing agrees."""
    async with console_of_two(tmp_path) as (one, other, shown):
        for server in (one, other):
            await (await server.connect()).register(MASTER, registration("T", "U"))
        observed = shown.console.observed
        await passing(one.clock, lambda: all(view.topic_report.topics for view in observed.cluster.servers))
        it = Scene(one, other, shown)
        assert "The 2 servers agree." in await it.page("/diff")
        assert "1 broker, 2 topics, 2 servers agree" in await shown.text("/")
        assert (await shown.http.get("/diff.json")).json()["same"]

        # The view before the first response with topics.
        view = observed.cluster.server(other.where)
        observed.put(replace(view, topic_report=TopicReport()))
        words, overview, found = await it.page("/diff"), await shown.text("/"), await shown.http.get("/diff.json")

    assert f"{other.where} is not compared: its topics are not read yet" in words
    assert "Nothing to compare" in words
    assert "agree" not in words
    assert "Nothing to compare" in overview
    assert "servers agree" not in overview
    assert (found.json()["same"], found.json()["differences"]) == (False, [])


async def test_servers_that_deny_only_their_connections_are_compared(tmp_path: Path) -> None:
    """Brokers and topics are compared whatever else an account may not read."""
    async with scene(tmp_path) as it:
        observed = it.shown.console.observed
        for view in observed.cluster.servers:
            observed.put(replace(view, refused={"connections": "denied"}))
        words = await it.page("/diff")

    assert "Nothing to compare" not in words
    assert "is not compared" not in words


async def test_clients_settings_and_keys_are_shown_by_server(tmp_path: Path) -> None:
    """A setting with different values drifts, unless each server has its own value by design."""
    async with scene(tmp_path, quota_brokers=7) as it:
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}
        assert (await (await it.one.connect()).call(100, order)).header["code"] == 0

        clients = await it.page("/clients?role=broker")
        every = await it.page("/clients")
        by_request = await it.shown.text("/clients?sort=last_request")
        settings, drifting = await it.page("/settings"), await it.page("/settings?show=drifting")
        keys = await it.page("/kv")
        elsewhere = await it.page("/kv?namespace=other")

    assert "Connections: 3" in clients
    assert f"{it.one.where} broker cluster-1/broker-a/0 json" in clients
    assert "client this console msgpack" in every
    # The longest time since a request comes first.
    assert 'aria-sort="descending"><a href="/clients?sort=last_request"' in by_request
    assert "listenPort individual by a restart" in settings
    assert "enableTopicList while running true" in settings
    assert "Settings whose values differ between servers: 1." in drifting
    assert "quotaBrokers differs" in drifting
    assert "listenPort" not in drifting
    assert "T differs broker-a:8 none" in keys
    assert "Namespaces ORDER_TOPIC_CONFIG" in elsewhere
    assert "No server has keys in this namespace." in elsewhere


async def test_long_namespace_has_pages(tmp_path: Path) -> None:
    """A page has a hundred keys, those that differ first; a text chooses among the keys."""
    async with scene(tmp_path) as it:
        one, other = await it.one.connect(), await it.other.connect()
        for number in range(250):
            key = {"namespace": "many", "key": f"k{number:03}", "value": "v"}
            assert (await one.call(100, key)).header["code"] == 0
            if number != 249:
                assert (await other.call(100, key)).header["code"] == 0

        first = await it.page("/kv?namespace=many")
        last = await it.shown.text("/kv?namespace=many&q=K&page=3")
        chosen = await it.page("/kv?namespace=many&q=+k12+")
        none = await it.page("/kv?namespace=many&q=x")

    assert "Keys: 250" in first
    assert (first.count("k249 differs v none"), first.count("k098 v v"), "k099" in first) == (1, 1, False)
    assert ('<th scope="row"><bdi>k248</bdi>' in last, '<th scope="row"><bdi>k198</bdi>' in last) == (True, False)
    assert 'href="/kv?namespace=many&amp;q=K&amp;page=2" rel="prev"' in last
    assert ("Keys: 10" in chosen, "k129 v v" in chosen) == (True, True)
    assert "No such key." in none


async def test_filter_without_a_match_is_named(tmp_path: Path) -> None:
    """After the last broker of a cluster, or client of a role, has left, its filter does not look like `all`."""
    async with scene(tmp_path) as it:
        brokers = await it.shown.text("/brokers?cluster=gone")
        clients = await it.shown.text("/clients?role=gone&protocol=other")

    assert '<option value="gone" selected>gone</option>' in brokers
    assert '<option value="gone" selected>gone</option>' in clients
    assert '<option value="other" selected>other</option>' in clients


# What pages show while no server responds.
SILENT = {
    "/": "Last events Events unknown on",
    "/topology": "Unknown: no server reports its brokers.",
    "/brokers": "Unknown: no server reports its brokers.",
    "/topics": "Unknown: no server reports its topics.",
    "/search?q=broker": "Unknown: no server reports its topics.",
    "/settings": "unknown",
    "/audit": "but not who made them. Events unknown on",
}


async def test_server_that_does_not_respond_is_not_compared(tmp_path: Path) -> None:
    """Settings and keys of two servers say nothing about a third one, which the pages name."""
    with refusing_address() as down:
        async with scene(tmp_path, down) as it:
            await passing(it.one.clock, lambda: it.shown.console.observed.cluster.server(down).is_reachable is False)
            settings, keys, clients = await it.page("/settings"), await it.page("/kv"), await it.page("/clients")
            async with console(it.one.clock, down) as alone:
                await passing(it.one.clock, lambda: alone.console.observed.cluster.servers[0].is_reachable is False)
                unknown = await Scene(it.one, it.other, alone).page("/kv")
                silent = {path: await Scene(it.one, it.other, alone).page(path) for path in SILENT}
                topic = await Scene(it.one, it.other, alone).page("/topic?name=T")
                broker = await Scene(it.one, it.other, alone).page("/broker?cluster=cluster-1&name=broker-a")

    for path, text in SILENT.items():
        assert text in silent[path], path
    assert unknown.rstrip().endswith("unknown")
    assert "Servers that report their keys: 2; none has keys in this namespace." in keys
    assert f" Connections of {down} are unknown. " in clients
    assert f"no connection to {down}" in settings
    assert f"no connection to {down}" in keys
    assert "All settings have the same values" not in settings
    for page in (keys, unknown):
        assert "Namespaces unknown" in page
        assert "No server has keys" not in page
    assert "Unknown: no server reports its topics." in topic
    assert "The topic has no queues" not in topic
    assert "Unknown: no server reports its brokers." in broker
    assert "Topics unknown Connections unknown" in broker
    for page in (topic, broker):
        assert "none has this" not in page


async def test_servers_that_respond_do_not_speak_for_the_others(tmp_path: Path) -> None:
    """Two of three servers agree, have a topic, and have no broker: each page says how many servers it is about."""
    clock = FakeClock()
    with refusing_address() as down:
        async with (
            namesrv_in_process(tmp_path / "1", clock=clock) as one,
            namesrv_in_process(tmp_path / "2", clock=clock) as other,
            console(clock, one.where, other.where, down) as shown,
        ):
            it = Scene(one, other, shown)
            await passing(
                clock, lambda: all(view.is_reachable is not None for view in shown.console.observed.cluster.servers)
            )
            overview, brokers, topology = [await it.page(path) for path in ("/", "/brokers", "/topology")]
            for server in (one, other):
                await (await server.connect()).register(MASTER)
            await passing(
                clock,
                lambda: sum("T" in view.topic_report.topics for view in shown.console.observed.cluster.servers) == 2,
            )
            topic, search = await shown.text("/topic?name=T"), await it.page("/search?q=none")
            nowhere = await it.page("/topic?name=elsewhere")
            of_events = [
                await it.page(path) for path in ("/", "/topic?name=T", "/broker?cluster=cluster-1&name=broker-a")
            ]

    for page in (overview, brokers, topology):
        assert "Servers that report their brokers: 2; none has a broker." in page
    assert "Compared servers: 2, without a difference. Servers that cannot be compared: 1." in overview
    assert '<p class="late">On all servers that report topics (2).</p>' in topic
    assert "Servers that report their topics: 2; none has this topic." in nowhere
    assert "Queues by broker and server unknown" in nowhere
    for page in of_events:
        assert "routes changed by broker-a: 2 (T, U)" in page
        assert page.rstrip().endswith(f" Events unknown on {down} .")
    assert "Nothing found Topics are reported by 2 of 3 servers." in search


async def test_a_group_without_a_change_does_not_stand_for_all(tmp_path: Path) -> None:
    """While other brokers have registered, the page of an unknown group names its own brokers only."""
    async with scene(tmp_path) as it:
        broker = await it.page("/broker?cluster=cluster-1&name=elsewhere")

    assert "No broker of this group registered or left in the last 15 minutes." in broker


async def test_only_the_query_of_a_page_is_read() -> None:
    """Other names are in no link of a page; a value that is too long is an error, as in a live update."""
    read = {name for page in PAGES for name in page.fields}
    assert {"q", "name", "namespace", "with:", "topic", "account"} < read
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        for page in PAGES:
            answer = await shown.http.get(page.path, params={"unread": "x", f"with:{'x' * 99}": "1"})
            main = answer.text.partition("<main")[2]
            assert ("unread" in main, "x" * 99 in main) == (False, False), page.path
            for name in page.fields:
                given = f"{name}127.0.0.1:1" if name.endswith(":") else name
                query = {given: "x" * (page.max_characters + 1)}
                says = f"{given}: longer than {page.max_characters:,} characters\n"
                assert (await shown.http.get(page.path, params=query)).text == says
                if page.is_live:
                    live = await shown.http.get("/live", params={"of": f"{page.path}?{urlencode(query)}"})
                    assert (live.status_code, live.text) == (400, says)


async def test_search_finds_brokers_and_topics(tmp_path: Path) -> None:
    """Hits appear on the search page, and in the part of it below the search field."""
    async with scene(tmp_path) as it:
        assert "Search broker broker-a broker broker-b topic TBW102" in await it.page("/search?q=B")
        part = await it.shown.text("/search?q=alert&part=results")
        assert part.startswith("<section")
        assert "&lt;script&gt;" in part


async def test_search_finds_brokers_of_one_name_in_two_clusters(tmp_path: Path) -> None:
    """Each server has a broker of the name, which the page names with its cluster."""
    async with console_of_two(tmp_path) as (one, other, shown):
        for server, broker in ((one, MASTER), (other, MASTER._replace(cluster="cluster-2"))):
            await (await server.connect()).register(broker)
        await passing(one.clock, lambda: len(shown.console.observed.cluster.broker_keys) == 2)
        page = await shown.text("/search?q=broker-a")

    for cluster in ("cluster-1", "cluster-2"):
        assert f'href="/broker?cluster={cluster}&amp;name=broker-a"' in page


async def test_audit_page_is_live_or_has_the_time_of_its_list(tmp_path: Path) -> None:
    """Without a trail an open page receives later events; the acts of a trail have the time at which they were read."""
    async with scene(tmp_path) as it:
        tab = it.shown.tab("/audit")
        await passing(it.one.clock, lambda: "events" in tab.parts)
        await (await it.one.connect()).register(SLAVE, registration("T", "U"))
        await passing(it.one.clock, lambda: "cluster-1/broker-a/1 registered" in tab.parts["events"])
        tab.leave()

        async with console(it.one.clock, it.one.where, audit=(it.one.data_dir,)) as shown:
            read_ms = round(it.one.clock.wall() * 1000)
            assert f'it has the acts until <time data-ms="{read_ms}">' in re.sub(
                r"\s+", " ", await shown.text("/audit")
            )


async def test_open_audit_page_reads_the_trail_only_once(tmp_path: Path) -> None:
    """Only the frame of the page is live: its verdict does not wait for a trail that is large, or on a stuck disk."""
    hour = tmp_path / "trail" / "dt=2023-11-14" / "hour=23"
    hour.mkdir(parents=True)
    stuck = hour / "ns1-0a-1.jsonl.open"
    os.mkfifo(stuck)
    async with (
        namesrv_in_process(tmp_path / "1") as server,
        console(server.clock, server.where, audit=(tmp_path / "trail",)) as shown,
    ):
        tab = shown.tab("/audit")
        try:
            await passing(server.clock, lambda: "no broker on 1 server" in tab.parts.get("verdict", ""))
        finally:
            # A reader of the file waits for a writer.
            with suppress(OSError):
                os.close(os.open(stuck, os.O_WRONLY | os.O_NONBLOCK))
        tab.leave()


async def test_the_audit_trail_is_read_where_it_is_given(tmp_path: Path) -> None:
    """The page lists changes with their account, newest first; without a trail, the events of the servers."""
    async with scene(tmp_path) as it:
        assert "cluster-1/broker-b/0 registered with 2 topics" in await it.page("/audit")
        await it.one.clock.advance(1.0)
        await (await it.one.connect()).call(205, {"brokerName": "broker-a"})
        # Lines about registrations have a file of their own.
        await until(lambda: all(act in "".join(_lines(it.one.data_dir)) for act in ("WIPE", "REGISTER_BROKER")))
        async with console(
            it.one.clock, it.one.where, audit=(it.one.data_dir, it.one.data_dir / "audit", tmp_path / "none")
        ) as shown:
            words = await Scene(it.one, it.other, shown).page("/audit?event=change&broker=broker-a")
            assert f"no such directory: {tmp_path / 'none'}" in words
            assert "write permission broker-a: true -&gt; false" in words
            assert words.index("WIPE_WRITE_PERM_OF_BROKER") < words.index("REGISTER_BROKER")
            assert words.count("WIPE_WRITE_PERM_OF_BROKER") == 1
            shown.http.cookies.set("language", "zh")
            in_chinese = await shown.text("/audit?event=change")
            assert '<td data-label="事件">变更</td>' in in_chinese
            assert re.search("写权限 broker-a.true -&gt; false.运维操作.<", in_chinese)
            shown.http.cookies.delete("language")
            for query in ("account=unknown", "event=sign_in"):
                assert "No such acts." in await Scene(it.one, it.other, shown).page(f"/audit?{query}")


def _lines(data_dir: Path) -> list[str]:
    return [path.read_text() for path in data_dir.glob("audit/dt=*/hour=*/*.open")]


def test_search_puts_beginnings_and_short_names_first() -> None:
    """The best hits are few, and in any case of letters."""
    topics = [f"topic-{number}" for number in range(10_000)] + ["my-topic-9"]

    found = search("Topic-9", ["topic-9-broker", "a"], topics, most=4)

    assert found == [Hit("topic", name) for name in ("topic-9", "topic-90", "topic-91", "topic-92")]
    assert search("9-b", ["topic-9-broker"], topics) == [Hit("broker", "topic-9-broker")]
    assert search(" ", ["a"], topics) == []
