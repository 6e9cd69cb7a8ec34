"""The HTML of the pages about the past, without their script; the log is a real server's."""

import os
import re
import signal
from pathlib import Path

from tests.support.console import Shown, console
from tests.support.fake_clock import FakeClock
from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, broker, member
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER, native_registration
from tests.support.spark_logs import write_plain
from tests.support.threads import without_new_threads

NOWHERE = "127.0.0.1:1"
HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m" + "x" * 80


def text_of(html: str) -> str:
    """The text of the main part, with single blanks."""
    main = html[html.index("<main") : html.index("</main>")]
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())


async def asked(shown: Shown, path: str) -> str:
    """The page, as soon as the logs are read."""
    return text_of(await shown.text(f"{path}{'&' if '?' in path else '?'}wait=1"))


async def test_the_past_of_a_real_server(tmp_path: Path) -> None:
    """A broker registers, a client gets its route, the broker falls silent and is evicted: all pages show it."""
    async with namesrv_in_process(tmp_path, scan_interval_seconds=5.0) as server:
        peer, client = await server.connect(), await server.connect()
        await peer.register(MASTER, native_registration("orders"), spelling="native")
        assert (await client.call(105, {"topic": "orders"})).code == 0
        for _ in range(4):
            await server.clock.advance(30)
            await peer.register(MASTER, native_registration("orders"), spelling="native")
        await server.clock.advance(200)
        # Stopping waits for the disk, and all connections end.
        clock = FakeClock(wall=server.clock.wall())
        await server.stop()
    async with console(clock, NOWHERE, logs=(tmp_path / "heartbeats",)) as shown:
        timeline = await asked(shown, "/timeline")
        broken = await shown.text("/timeline?from=nonsense")
        route = await asked(shown, "/travel?topic=orders&at=2023-11-14T22:18")
        before = await asked(shown, "/travel?topic=orders&at=2023-11-14T22:15:30")
        what_if = await asked(shown, "/what-if?expiry=60&scan=5&poll=30")
        wrong = await asked(shown, "/what-if?expiry=9999")
        report = await shown.http.get("/what-if/report.html?expiry=45&to=2023-11-14T22:30")
        no_report = await shown.http.get("/what-if/report.html?expiry=x")
        strip = await shown.text("/strip.svg?cluster=cluster-1&name=broker-a")
        topic = await asked(shown, "/topic?name=orders")
        detail = await shown.text("/broker?cluster=cluster-1&name=broker-a")
        chinese = await shown.http.get("/strip.svg?cluster=cluster-1&name=broker-a", headers={"accept-language": "zh"})

    # The span begins with the logs.
    assert "2023-11-14T22:00:00 \N{EN DASH} 2023-11-14T22:18:40 UTC 15 min 1 h 24 h all" in timeline
    assert "cluster-1/broker-a/0 10.0.0.1:10911 evicted 2 m 5 s" in timeline
    assert "server not running, or its log is missing" in timeline
    assert "not a valid time: &#39;nonsense&#39;" in broken
    assert "Change Route 2023-11-14T22:17:25 vm 2" in route
    assert "\N{MINUS SIGN} broker-a :0 no route 2023-11-14T22:13:20 vm 1 + broker-a :0 broker-a :0" in route
    assert "1 of 1 connection had an old route." in route
    assert "0 of 1 connection had an old route." in before
    assert "As logged 2 m 33 s" in what_if
    assert "With these settings 1 m 33 s" in what_if
    assert "Client staleness (p99, upwards) against false evictions" in what_if
    assert "0 removals for another reason (closed connections), of which 0 were false" in what_if
    assert report.headers["content-disposition"] == 'attachment; filename="staleness.html"'
    assert "cluster-1/broker-a" in report.text
    assert no_report.status_code == 400
    assert "expiry: &#39;9999&#39; is not a number of seconds from 10 to 300" in wrong
    assert "Clients of this topic Client" in topic
    assert "cluster-1/broker-a/0 on" in strip
    assert "次心跳" in chinese.text
    assert chinese.headers["vary"] == "cookie, accept-language"
    assert 'src="/strip.svg?cluster=cluster-1&amp;name=broker-a"' in detail


async def test_change_of_a_route_whose_brokers_stay_is_not_empty(tmp_path: Path) -> None:
    """The logs have the brokers of each route: of a removed write permission they show that something else changed."""
    lines = HeartbeatLines("boot-1", "ns-1").start().route(100, 1, member()).route(200, 2, member())
    write_plain(tmp_path, "ns-1-1.jsonl", lines.lines)
    clock = FakeClock(wall=MIDNIGHT_MS / 1000 + 60)
    async with console(clock, NOWHERE, logs=(tmp_path,)) as shown:
        page = await asked(shown, "/travel?topic=t&at=2026-03-01T00:01")

    assert "ns-1 2 permissions, queues or addresses broker-a :0" in page
    assert "ns-1 1 + broker-a :0 broker-a :0" in page


async def test_without_logs_pages_say_what_to_do(tmp_path: Path) -> None:
    """Without logs a page names the option; with logs it shows at once that they are being read."""
    async with console(FakeClock(), NOWHERE) as shown:
        for path in ("/timeline", "/travel", "/what-if"):
            assert "namesrv-console --logs DIR" in text_of(await shown.text(path))
        assert (await shown.http.get("/strip.svg")).status_code == 404
    async with console(FakeClock(), NOWHERE, logs=(tmp_path / "absent",)) as shown:
        assert f"{tmp_path / 'absent'}: no such directory" in await asked(shown, "/timeline")


async def test_missing_directory_is_named_beside_the_others(tmp_path: Path) -> None:
    """One of two directories is not there, as on a disk that is not mounted, until it comes back."""
    for name, server in (("there", "ns-1"), ("away", "ns-2")):
        lines = HeartbeatLines(f"boot-{name}", server).start().heartbeats(0, 30_000)
        lines.route(40_000, 1, member(), topic="t").served(41_000, 1, client=f"client-of-{server}", topic="t")
        write_plain(tmp_path / name, f"{server}-1.jsonl", lines.lines)
    away = tmp_path / "away"
    clock = FakeClock(wall=(MIDNIGHT_MS + 60_000) / 1000)
    paths = ("/timeline", "/travel?topic=t&at=2026-03-01T00:01", "/topic?name=t")
    async with console(clock, NOWHERE, logs=(tmp_path / "there", away)) as shown:
        whole = await asked(shown, paths[0])
        away.rename(tmp_path / "elsewhere")
        partly = [await asked(shown, path) for path in paths]
        strip = await shown.text("/strip.svg?cluster=c1&name=broker-a")
        report = await shown.http.get("/what-if/report.html")
        (tmp_path / "elsewhere").rename(away)
        again = await asked(shown, paths[0])

    missing = f"Left out, because there is no such directory: {away}"
    assert [missing in page for page in (whole, *partly, strip, again)] == [False, True, True, True, True, False]
    assert ["ns-2" in page for page in (whole, partly[0], strip, again)] == [True, False, False, True]
    assert "ns-1" in partly[0]
    assert "client-of-ns-1" in partly[1]
    assert "client-of-ns-1" in partly[2]
    assert "c1/broker-a/0 on ns-1" in strip
    # A file that is kept would not show what it lacks.
    assert (report.status_code, report.text) == (503, f"{away}: no such directory\n")


async def test_fields_of_a_form_have_moments_that_browsers_accept(tmp_path: Path) -> None:
    """A browser warns about a date without a time; a field whose text is not a moment is empty."""
    write_plain(tmp_path, "ns-1-boot-1-1.jsonl", HeartbeatLines().start().lines)
    async with console(FakeClock(), NOWHERE, logs=(tmp_path,)) as shown:
        page = await shown.text("/timeline?from=2026-03-01&to=yesterday&wait=1")

    assert 'name="from" type="datetime-local" step="1" value="2026-03-01T00:00:00"' in page
    assert 'name="to" type="datetime-local" step="1" value=""' in page


async def test_hostile_names_are_text(tmp_path: Path) -> None:
    """Any peer of a NameServer can register any name, and the log contains the name unchanged."""
    lines = HeartbeatLines(nameserver=HOSTILE).start().heartbeats(0, 30_000, of=broker(HOSTILE, cluster=HOSTILE))
    # A retry topic is longer than its consumer group, whose name has up to 255 characters.
    topic = HOSTILE + "x" * 200
    lines.route(40_000, 1, member(HOSTILE), topic=topic).served(41_000, 1, client=HOSTILE, topic=topic)
    write_plain(tmp_path, "ns-1-boot-1-1.jsonl", lines.lines)
    async with console(FakeClock(), NOWHERE, logs=(tmp_path,)) as shown:
        span = "from=2026-03-01&to=2026-03-01T00:05"
        query = {"topic": topic, "at": "2026-03-01T00:01", "wait": "1"}
        pages = [
            await shown.text(f"/timeline?{span}&wait=1"),
            (await shown.http.get("/travel", params=query)).text,
            (await shown.http.get("/strip.svg", params={"cluster": HOSTILE, "name": HOSTILE})).text,
        ]
        endless = await shown.http.get("/travel", params=query | {"topic": "x" * 2_000})

    assert (endless.status_code, endless.text) == (400, "topic: longer than 1,000 characters\n")
    assert "alert(1)" in pages[0]
    assert "1 connection had" in pages[1]
    for page in pages:
        assert "<script>alert" not in page
        assert not set(page) & {"\u202e", "\x1b"}


async def test_removal_for_an_unknown_reason_is_shown(tmp_path: Path) -> None:
    """A newer server may have removed a broker for a reason that this console does not know."""
    lines = HeartbeatLines().start().heartbeats(0, 30_000).evict(40_000, reason="expelled")
    write_plain(tmp_path, "ns-1-boot-1-1.jsonl", lines.lines)
    async with console(FakeClock(), NOWHERE, logs=(tmp_path,)) as shown:
        timeline = await asked(shown, "/timeline?from=2026-03-01&to=2026-03-01T00:05")
        filtered = await asked(shown, "/timeline?from=2026-03-01&to=2026-03-01T00:05&q=elsewhere")

    assert "10.0.0.1:broker-a-0 removed" in timeline
    assert "No broker that matches the filter sent a heartbeat in this time." in filtered


def worker_of(console_pid: int) -> int:
    """The process that reads logs for a console."""
    children = Path(f"/proc/{console_pid}/task/{console_pid}/children").read_text().split()
    (found,) = [pid for pid in children if "namesrv_console.past.worker" in Path(f"/proc/{pid}/cmdline").read_text()]
    return int(found)


async def test_live_pages_are_not_delayed_by_a_reading(tmp_path: Path) -> None:
    """While a log is read without end, its page shows that, other pages are answered, and the console can stop."""
    place = tmp_path / "dt=2023-11-14" / "hour=22"
    place.mkdir(parents=True)
    (place / "ns-1-boot-1-1.jsonl").touch()
    async with console(FakeClock(), NOWHERE, logs=(tmp_path,)) as shown:
        await shown.text("/timeline?wait=1")
        os.kill(worker_of(os.getpid()), signal.SIGSTOP)
        reading = await shown.text("/timeline?q=broker")
        overview = text_of(await shown.text("/"))

    again = re.search(r'data-again="([^"]*)"', reading)
    assert again is not None
    assert again[1] == "/timeline?wait=1&amp;q=broker"
    assert "Overview" in overview


async def test_page_about_the_past_needs_no_thread_of_the_console(tmp_path: Path) -> None:
    """On a dead network disk even a look at a directory lasts for ever: only the worker looks."""
    write_plain(tmp_path, "ns-1-boot-1-1.jsonl", HeartbeatLines().start().heartbeats(0, 30_000).lines)
    clock = FakeClock(wall=(MIDNIGHT_MS + 60_000) / 1000)
    async with console(clock, NOWHERE, logs=(tmp_path,)) as shown:
        await shown.text("/timeline?wait=1")
        with without_new_threads():
            timeline = await asked(shown, "/timeline")
            strip = await shown.text("/strip.svg?cluster=c1&name=broker-a")
            await shown.text("/broker?cluster=c1&name=broker-a")
            await shown.text("/topic?name=t")

    assert "c1/broker-a/0" in timeline
    assert "c1/broker-a/0 on ns-1" in strip
