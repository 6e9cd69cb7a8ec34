"""The verdict over time: brokers that leave and return, masters that fall silent, servers that stop."""

from pathlib import Path

from namesrv_console.health import Report
from tests.support.console import Shown, console
from tests.support.fake_clock import passing
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import MASTER, SLAVE, registration
from tests.support.tcp_proxy import TcpProxy


def report(shown: Shown) -> Report:
    """The newest report."""
    return shown.console.health.report(shown.console.observed.cluster)


def kinds(shown: Shown) -> list[str]:
    """The kinds of all problems."""
    return [one.kind for one in report(shown).problems]


async def test_killed_group_stays_visible_until_it_is_back(tmp_path: Path) -> None:
    """Connections of master and slave break: the master is missed, then the whole group, until both register again."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, registration("T", "U"))
        await slave.register(SLAVE, registration("T", "U"))
        await passing(server.clock, lambda: report(shown).verdict.brokers == 2)

        await server.hang_up(master)
        await passing(server.clock, lambda: kinds(shown) == ["without_master", "broker_gone"])
        picture = await shown.text("/topology")
        assert "masters: 0, slaves: 1" in picture
        assert 'class="critical"' in picture
        assert "broken: 1" in picture
        assert [(one.key[2], one.reason) for one in report(shown).gone] == [(0, "disconnected")]

        await server.hang_up(slave)
        await passing(server.clock, lambda: kinds(shown) == ["group_gone"])
        page = await shown.text("/topics")
        assert 'class="verdict critical"' in page
        assert "1 broker group gone" in page
        assert "icon-critical.svg" in page

        again = await server.connect()
        await again.register(MASTER, registration("T", "U"))
        await again.register(SLAVE, registration("T", "U"))
        await passing(server.clock, lambda: kinds(shown) == [])
        assert list(report(shown).gone) == []


async def test_master_falls_silent_without_any_response(tmp_path: Path) -> None:
    """Time alone makes a master silent, and open pages receive the new verdict."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, registration("T", "U"))
        await slave.register(SLAVE, registration("T", "U"))
        await passing(server.clock, lambda: report(shown).verdict.brokers == 2)
        tab = shown.tab("/brokers")
        began = server.clock.monotonic()

        async def heartbeat() -> None:
            await slave.call(904, SLAVE.ext)

        for _ in range(4):
            await server.clock.advance(20)
            await heartbeat()
        await passing(server.clock, lambda: "1 silent master" in tab.parts.get("verdict", ""))
        assert kinds(shown) == ["silent_master"]
        assert server.clock.monotonic() - began > 60
        tab.leave()


async def test_planned_stop_is_no_problem(tmp_path: Path) -> None:
    """A broker that unregisters is listed as gone, and the verdict stays good."""
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where) as shown:
        broker = await server.connect()
        await broker.register(MASTER, registration("T", "U"))
        await passing(server.clock, lambda: report(shown).verdict.brokers == 1)

        await broker.call(104, MASTER.ext)
        await passing(server.clock, lambda: [one.reason for one in report(shown).gone] == ["unregistered"])
        assert report(shown).verdict.level == "good"
        assert "unregistered" in await shown.text("/")


async def test_brokers_of_an_unreachable_server_are_not_gone(tmp_path: Path) -> None:
    """The console knows nothing about brokers whose only server stopped, and names the server."""
    async with (
        namesrv_in_process(tmp_path / "1") as one,
        namesrv_in_process(tmp_path / "2", clock=one.clock) as two,
        console(one.clock, one.where, two.where) as shown,
    ):
        await (await two.connect()).register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: report(shown).verdict.brokers == 1)

        await two.stop()
        await passing(one.clock, lambda: "server_unreachable" in kinds(shown))
        assert list(report(shown).gone) == []


async def test_killed_group_is_gone_although_a_hung_server_had_it(tmp_path: Path) -> None:
    """A server that hangs before it can report a broker's death does not make the broker look alive."""
    async with (
        namesrv_in_process(tmp_path / "1") as one,
        namesrv_in_process(tmp_path / "2", clock=one.clock) as two,
        TcpProxy(two.address) as way,
        console(one.clock, one.where, way.address) as shown,
    ):
        peers = [(server, await server.connect()) for server in (one, two)]
        for _, peer in peers:
            await peer.register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: report(shown).verdict.agrees and report(shown).verdict.brokers == 1)

        way.stall()
        for server, peer in peers:
            await server.hang_up(peer)
        await passing(one.clock, lambda: kinds(shown) == ["group_gone", "server_frozen"])

        again = await one.connect()
        await again.register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: kinds(shown) == ["server_frozen"])


async def test_verdict_does_not_claim_agreement_beside_expected_differences(tmp_path: Path) -> None:
    """A broker that registers with several servers in turn causes no problem, and the verdict names the difference."""
    async with (
        namesrv_in_process(tmp_path / "1") as one,
        namesrv_in_process(tmp_path / "2", clock=one.clock) as two,
        console(one.clock, one.where, two.where) as shown,
    ):
        await (await one.connect()).register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: (report(shown).verdict.brokers, report(shown).verdict.topics) == (1, 2))
        assert "1 broker, 2 topics, 2 servers, with expected differences" in await shown.text("/")

        await (await two.connect()).register(MASTER, registration("T", "U"))
        await passing(one.clock, lambda: report(shown).verdict.agrees)
        assert "1 broker, 2 topics, 2 servers agree" in await shown.text("/")
