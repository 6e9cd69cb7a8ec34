"""Refusals in the audit trail: counted within a window, so that no number of them fills it."""

from namesrv.access.audit import MAX_DIFFERENT, WINDOW_SECONDS
from tests.support.heartbeat_files import of, read_log
from tests.support.in_process import HOST, InProcess
from tests.support.namesrv_peer import NamesrvPeer


async def test_refusals_of_many_addresses(server: InProcess) -> None:
    """The first hundred kinds of ten seconds have a line each, all others one together; then it begins anew."""
    peers = [await NamesrvPeer.connect(server.address, source=f"127.0.1.{number + 1}") for number in range(120)]
    for _ in range(2):
        for peer in peers:
            assert 16 == (await peer.call(318, None, b"listenPort=1")).code
    await server.clock.advance(WINDOW_SECONDS + 1)
    assert 16 == (await peers[-1].call(318, None, b"listenPort=1")).code
    for peer in peers:
        peer.close()
    await server.stop()

    lines = read_log(server.data_dir / "audit")
    refusals = of(lines, "refusal")
    singles, repeated = refusals[:MAX_DIFFERENT], refusals[MAX_DIFFERENT:-1]
    assert {f"127.0.1.{number + 1}" for number in range(MAX_DIFFERENT)} == {
        line["peer"].rpartition(":")[0] for line in singles
    }
    assert [1] * MAX_DIFFERENT == [line["repeated"] for line in repeated]
    (others,) = of(lines, "refusals")
    assert (40, {"permission": 40}) == (others["count"], others["by_reason"])
    assert peers[-1].address == refusals[-1]["peer"]
    assert HOST != peers[-1].address.rpartition(":")[0]
