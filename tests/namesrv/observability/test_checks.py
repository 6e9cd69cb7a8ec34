"""When a server counts as alive, and when as ready."""

from pathlib import Path

import pytest

from namesrv.observability.checks import Check, liveness, readiness, report
from tests.support.fake_clock import FakeClock
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker

GOOD = Check("good", is_ok=True, found="as it should be")
BAD = Check("bad", is_ok=False, found="not as it should be")


@pytest.mark.parametrize(
    ("checks", "verbose", "page"),
    [
        ([GOOD], False, "ok\n"),
        ([GOOD], True, "[+] good: as it should be\nok\n"),
        ([GOOD, BAD], False, "[-] bad: not as it should be\nfailed\n"),
        ([GOOD, BAD], True, "[+] good: as it should be\n[-] bad: not as it should be\nfailed\n"),
    ],
)
def test_report(checks: list[Check], page: str, *, verbose: bool) -> None:
    """What failed is always named, the rest when asked for."""
    assert page == report(checks, verbose=verbose)


async def test_stuck_housekeeping_is_what_a_restart_mends(tmp_path: Path) -> None:
    """While it runs the server is alive; after 30 s without it, it is neither alive nor ready."""
    clock = FakeClock()
    async with namesrv_in_process(tmp_path, clock=clock) as server:
        namesrv = server.namesrv
        for _ in range(3):
            await clock.advance(20.0)
            assert [True] == [check.is_ok for check in liveness(namesrv)]
        # a scan that waits for ever for the lock
        async with namesrv.manager.lock.read():
            await clock.advance(39.0)
            assert ["[-] housekeeping: last ran 30.0 s ago"] != [str(check) for check in liveness(namesrv)]
            await clock.advance(5.0)
            assert [False] == [check.is_ok for check in liveness(namesrv)]
            assert {"housekeeping"} == {check.name for check in readiness(namesrv) if not check.is_ok}
        await clock.advance(2.0)
        assert [True] == [check.is_ok for check in liveness(namesrv)]


async def test_broker_that_is_missing(tmp_path: Path) -> None:
    """It is named until the wait is over; alive the server is all the time."""
    async with namesrv_in_process(tmp_path) as before:
        await (await before.connect()).register(Broker())
    async with namesrv_in_process(tmp_path) as server:
        (failed,) = [check for check in readiness(server.namesrv) if not check.is_ok]
        assert "brokers" == failed.name
        assert "waiting 45 s more for 1 of 1 expected brokers: cluster-1/broker-a/0" in failed.found
        assert all(check.is_ok for check in liveness(server.namesrv))

        await server.clock.advance(46.0)
        assert all(check.is_ok for check in readiness(server.namesrv))


async def test_draining_and_not_listening(tmp_path: Path) -> None:
    """Neither gets questions."""
    async with namesrv_in_process(tmp_path) as server:
        server.namesrv.is_draining = True
        assert ["[-] staying: draining"] == [str(check) for check in readiness(server.namesrv) if not check.is_ok]
        server.namesrv.is_draining = False
        addresses, server.namesrv.addresses = server.namesrv.addresses, []
        assert ["[-] listening: not yet"] == [str(check) for check in readiness(server.namesrv) if not check.is_ok]
        server.namesrv.addresses = addresses
