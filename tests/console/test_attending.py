"""Problems that an operator acknowledges, and brokers that an operator dismisses."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy
from typing import Any, Final, NamedTuple

import pytest

from namesrv_console.access.settings import AccessSettings
from namesrv_console.acknowledged import Acknowledgement, Acknowledgements, digest_of
from namesrv_console.health import Report
from tests.support.console import Shown, console
from tests.support.console_access import fields, write_users
from tests.support.fake_clock import passing, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, SLAVE, Broker, registration
from tests.support.threads import without_new_threads

WITHOUT_MASTER: Final = {"kind": "without_master", "subject": "cluster-1/broker-a"}
REASON: Final = "disk is being <replaced>"


class Attended(NamedTuple):
    """A console at which users sign in, and a group whose master's connection has closed."""

    shown: Shown
    server: InProcess
    trail: Path

    @property
    def report(self) -> Report:
        return self.shown.console.health.report(self.shown.console.observed.cluster)

    @property
    def verdict(self) -> tuple[str, int]:
        return self.report.verdict.level, self.report.verdict.acknowledged

    async def acknowledge(self, hours: str, why: str) -> int:
        """Send the form of the problem's page, and return the status."""
        page = await self.shown.http.get("/acknowledge", params=WITHOUT_MASTER)
        form = {**fields(page.text.split("<main")[1]), "hours": hours, "why": why}
        return (await self.shown.http.post("/acknowledge", data=form)).status_code

    @asynccontextmanager
    async def again(self, directory: Path) -> AsyncIterator["Attended"]:
        """Another console of the server, with its acknowledgements in a directory."""
        access = AccessSettings(users=self.trail.parent / "users", audit_log_dir=directory)
        async with console(self.server.clock, self.server.where, access=access) as shown:
            yield Attended(shown, self.server, directory)

    async def audited(self, request: str) -> dict[str, Any]:
        """The audit line of a request, once it is written."""

        def lines() -> list[dict[str, Any]]:
            found = [line for path in self.trail.glob("dt=*/*/*.open") for line in path.read_bytes().splitlines()]
            return [line for line in map(json.loads, found) if line.get("request") == request]

        await until(lambda: bool(lines()))
        return lines()[-1]


@asynccontextmanager
async def attended(path: Path) -> AsyncIterator[Attended]:
    """The console, olga signed in at it."""
    access = AccessSettings(users=write_users(path / "users"), audit_log_dir=path / "trail")
    async with (
        namesrv_in_process(path / "server") as server,
        console(server.clock, server.where, access=access) as shown,
    ):
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, registration("T", "U"))
        await slave.register(SLAVE, registration("T", "U"))
        found = Attended(shown, server, path / "trail")
        await passing(server.clock, lambda: found.report.verdict.brokers == 2)
        await master.call(104, MASTER.ext)
        await passing(server.clock, lambda: found.verdict == ("critical", 0))
        await found.shown.sign_in("olga")
        yield found


def file_in(directory: Path) -> Path:
    """The file of the acknowledgements."""
    return next(directory.glob("acknowledged-*.json"))


async def test_acknowledged_problem_is_shown_without_an_alarm(tmp_path: Path) -> None:
    """The page names who, why and until when; the trail has the same; the verdict is neither red nor green."""
    async with attended(tmp_path) as found:
        assert 'href="/acknowledge?kind=without_master&amp;subject=cluster-1%2Fbroker-a"' in await found.shown.text("/")
        assert [await found.acknowledge(*given) for given in (("8", ""), ("9", "why"))] == [400, 400]
        assert await found.acknowledge("8", REASON) == 303

        page = await found.shown.text("/")
        assert found.verdict == ("acknowledged", 1)
        assert 'class="verdict acknowledged"' in page
        assert "icon-acknowledged.svg" in page
        assert "acknowledged by olga (disk is being &lt;replaced&gt;) until" in page
        line = await found.audited("ACKNOWLEDGE")
        ends = found.report.acknowledged["without_master", "cluster-1/broker-a"].until
        change = {
            "what": "acknowledgement",
            "key": "without_master/cluster-1/broker-a",
            "before": None,
            "after": f"until {datetime.fromtimestamp(round(ends), UTC):%Y-%m-%dT%H:%M:%S}Z by olga: {REASON}",
        }
        assert (line["account"], line["changes"]) == ("olga", [change])
        assert 0 <= found.server.clock.wall() + 8 * 3600 - ends < 60


async def test_acknowledgement_ends_by_hand_or_with_its_problem(tmp_path: Path) -> None:
    """A problem that returns is a new one."""
    async with attended(tmp_path) as found:
        await found.acknowledge("1", "a")
        assert await found.acknowledge("0", "") == 303
        assert found.verdict == ("critical", 0)

        await found.acknowledge("8", "b")
        master = await found.server.connect()
        await master.register(MASTER, registration("T", "U"))
        await passing(found.server.clock, lambda: found.verdict == ("good", 0))
        await passing(found.server.clock, lambda: file_in(tmp_path / "trail").read_bytes() == b"[]")
        await master.call(104, MASTER.ext)
        await passing(found.server.clock, lambda: found.verdict == ("critical", 0))


async def test_acknowledgement_ends_after_its_hours(tmp_path: Path) -> None:
    """The problem alarms again if it lasts longer than the operator expected."""
    async with attended(tmp_path) as found:
        clock = found.server.clock
        await found.acknowledge("1", REASON)
        # Only the wall clock moves: within an hour of silence the slave would be evicted, too.
        clock.step_wall(3_570.0)
        await clock.advance(1)
        assert found.verdict == ("acknowledged", 1)

        clock.step_wall(30.0)
        await passing(clock, lambda: found.verdict == ("critical", 0))


async def test_acknowledgement_outlives_the_console(tmp_path: Path) -> None:
    """Another console with the same directory knows the acknowledgement; a damaged file counts as none."""
    async with attended(tmp_path) as found:
        await found.acknowledge("8", "why")
        async with found.again(found.trail) as other:
            await passing(found.server.clock, lambda: other.verdict == ("acknowledged", 1))
        file_in(found.trail).write_bytes(b"{")
        async with found.again(found.trail) as damaged:
            await passing(found.server.clock, lambda: damaged.verdict == ("critical", 0))


async def test_acknowledgement_ends_if_its_problem_ended_without_the_console(tmp_path: Path) -> None:
    """The problem was over before the console started again, so the next one alarms."""
    async with attended(tmp_path) as found:
        await found.acknowledge("168", "why")
        clock, server = found.server.clock, found.server
        (tmp_path / "later").mkdir()
        copy(file_in(tmp_path / "trail"), tmp_path / "later")
        master = await server.connect()
        await master.register(MASTER, registration("T", "U"))
        async with found.again(tmp_path / "later") as other:
            await passing(clock, lambda: other.verdict == ("good", 0))
            await clock.advance(60)
            await passing(clock, lambda: file_in(tmp_path / "later").read_bytes() == b"[]")

            await master.call(104, MASTER.ext)
            await passing(clock, lambda: other.verdict == ("critical", 0))


def test_names_with_any_characters_have_digests_of_their_own() -> None:
    """A name may contain a zero, which separates nothing, and half a character."""
    assert len({digest_of(texts) for texts in (["a\0", "b"], ["a", "\0b"], ["a", "b"], ["a\ud800", "b"])}) == 4


async def test_consoles_with_one_directory_keep_each_others_acknowledgements(tmp_path: Path) -> None:
    """Two consoles of the same servers share them; a console of other servers, with groups of equal names, has none."""
    one, two = (Acknowledgements(tmp_path, servers) for servers in (["s1:1", "s2:1"], ["s2:1", "s1:1"]))
    other = Acknowledgements(tmp_path, ["s3:1"])
    a, b, c = (Acknowledgement("group_gone", f"c1/{name}", "olga", "known", 100.0) for name in "abc")

    await one.add(a)
    await two.add(b)
    await other.add(c)
    await other.remove([a.key])
    await one.remove([c.key])

    again = [Acknowledgements(tmp_path, servers).at(0.0) for servers in (["s1:1", "s2:1"], ["s3:1"])]
    assert again == [{a.key: a, b.key: b}, {c.key: c}]
    await one.remove([b.key])
    assert (one.at(0.0), two.at(0.0)) == ({a.key: a}, {a.key: a})


async def test_acknowledgements_at_the_same_moment_are_all_kept(tmp_path: Path) -> None:
    """Operators at two consoles of the same servers acknowledge problems at the same moment, and another one ends."""
    one, two = (Acknowledgements(tmp_path, ["s1:1"]) for _ in range(2))
    a, b, c, d = (Acknowledgement("group_gone", f"c1/{name}", "olga", "known", 100.0) for name in "abcd")
    await one.add(d)

    await asyncio.gather(one.add(a), one.remove([d.key]), one.add(b), two.add(c))

    assert one.at(0.0) == two.at(0.0) == {a.key: a, b.key: b, c.key: c}


async def test_acknowledgement_stays_ended_although_the_disk_is_full(tmp_path: Path) -> None:
    """The file still has it when the next acknowledgement is written."""
    known = Acknowledgements(tmp_path, ["s1:1"])
    a, b = (Acknowledgement("group_gone", f"c1/{name}", "olga", "known", 100.0) for name in "ab")
    await known.add(a)
    file = file_in(tmp_path)
    text = file.read_bytes()
    file.unlink()
    file.mkdir()
    with pytest.raises(OSError, match="directory"):
        await known.remove([a.key])
    file.rmdir()
    file.write_bytes(text)

    await known.add(b)

    assert known.at(0.0) == Acknowledgements(tmp_path, ["s1:1"]).at(0.0) == {b.key: b}


async def test_acknowledgement_of_another_console_counts_after_a_removal_that_failed(tmp_path: Path) -> None:
    """The problem came back, and an operator of the other console has acknowledged it anew."""
    one, two = (Acknowledgements(tmp_path, ["s1:1"]) for _ in range(2))
    first, again, b = (
        Acknowledgement("group_gone", f"c1/{name}", "olga", why, 100.0)
        for name, why in (("a", "first"), ("a", "again"), ("b", "first"))
    )
    await one.add(first)
    with without_new_threads(), pytest.raises(OSError, match="can't start new thread"):
        await one.remove([first.key])
    # At its limit of threads the console goes on, as with a full disk.
    assert one.at(0.0) == {}

    await two.add(again)

    assert one.at(0.0) == {again.key: again}
    await one.add(b)
    assert one.at(0.0) == two.at(0.0) == {again.key: again, b.key: b}


async def test_operator_acknowledges_only_what_the_page_showed(tmp_path: Path) -> None:
    """The problem reaches a second server while the operator writes a reason: the page is shown again, with both."""
    access = AccessSettings(users=write_users(tmp_path / "users"), audit_log_dir=tmp_path / "trail")
    async with (
        namesrv_in_process(tmp_path / "1") as one,
        namesrv_in_process(tmp_path / "2", clock=one.clock) as two,
        console(one.clock, one.where, two.where, access=access) as shown,
    ):
        seen = Attended(shown, one, tmp_path / "trail")

        async def lose_master(server: InProcess, count: int) -> None:
            await (await server.connect()).register(SLAVE)
            await passing(one.clock, lambda: [len(it.servers) for it in seen.report.problems if it.group] == [count])

        await shown.sign_in("olga")
        await lose_master(one, 1)
        page = await shown.text("/acknowledge?kind=without_master&subject=cluster-1/broker-a")
        await lose_master(two, 2)
        form = {"hours": "8", "why": REASON}
        refused = await shown.http.post("/acknowledge", data=fields(page.split("<main")[1]) | form)
        assert (refused.status_code, seen.report.acknowledged) == (409, {})
        assert "The problem has changed meanwhile" in refused.text
        assert "disk is being &lt;replaced&gt;" in refused.text
        assert f"on <bdi>{one.where}, {two.where}</bdi>" in refused.text

        again = await shown.http.post("/acknowledge", data=fields(refused.text.split("<main")[1]) | form)
        assert (again.status_code, len(seen.report.acknowledged)) == (303, 1)


async def test_dismissed_broker_is_listed_no_more(tmp_path: Path) -> None:
    """A broker that has left is listed until it is dismissed; the trail names the operator."""
    async with attended(tmp_path) as found:
        assert 'href="/dismiss?broker=cluster-1%2Fbroker-a%2F0"' in await found.shown.text("/")
        page = await found.shown.text("/dismiss?broker=cluster-1/broker-a/0")
        answer = await found.shown.http.post("/dismiss", data=fields(page.split("<main")[1]))

        assert (answer.status_code, list(found.report.gone)) == (303, [])
        line = await found.audited("DISMISS")
        assert (line["account"], line["changes"][0]["key"]) == ("olga", "cluster-1/broker-a/0")
        assert (await found.shown.http.get("/dismiss?broker=cluster-1/broker-a/0")).status_code == 404


async def test_name_with_invisible_characters_is_acknowledged_and_dismissed(tmp_path: Path) -> None:
    """Pages show the characters of a name that no screen shows as escapes; the forms have the name itself."""
    async with attended(tmp_path) as found:
        odd = Broker("a\n\u200b\u3000b", 1, "10.0.0.9:10911")
        peer = await found.server.connect()
        await peer.register(odd)
        await passing(found.server.clock, lambda: len(found.report.problems) == 2)
        problem = next(one for one in found.report.problems if one.group == (odd.cluster, odd.name))

        page = await found.shown.http.get("/acknowledge", params={"kind": problem.kind, "subject": problem.subject})
        form = fields(page.text.split("<main")[1]) | {"hours": "8", "why": REASON}
        assert (await found.shown.http.post("/acknowledge", data=form)).status_code == 303
        assert list(found.report.acknowledged) == [problem.key]

        await found.server.hang_up(peer)
        await passing(found.server.clock, lambda: odd.name in [one.key[1] for one in found.report.gone])
        page = await found.shown.http.get("/dismiss", params={"broker": f"{odd.cluster}/{odd.name}/1"})
        assert (await found.shown.http.post("/dismiss", data=fields(page.text.split("<main")[1]))).status_code == 303
        assert odd.name not in [one.key[1] for one in found.report.gone]


async def test_viewers_do_not_acknowledge(tmp_path: Path) -> None:
    """A viewer sees the list, and neither the form nor its effect; without users the console has no links."""
    async with attended(tmp_path) as found:
        await found.shown.sign_in("vera")
        assert (await found.shown.http.get("/acknowledge", params=WITHOUT_MASTER)).status_code == 403
        assert (await found.shown.http.get("/dismiss?broker=cluster-1/broker-a/0")).status_code == 403
        assert (await found.shown.http.post("/acknowledge", data=WITHOUT_MASTER)).status_code == 403
        async with console(found.server.clock, found.server.where) as shown:
            await passing(found.server.clock, lambda: shown.console.observed.cluster.servers[0].is_reachable)
            assert "/acknowledge" not in await shown.text("/")
