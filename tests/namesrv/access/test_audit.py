"""The audit trail of a server on a fake clock: refusals are counted, and the queue for the disk is bounded."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from namesrv.access.audit_windows import WINDOW_SECONDS
from namesrv.kv import KVLimits
from namesrv.net.dispatcher import SUCCESS, Reply
from namesrv.net.request import Request
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from namesrv_client.ctl.audit_trail import Trail
from namesrv_remoting.command import RemotingCommand
from namesrv_runtime.line_log.files import Retention
from tests.support.fake_clock import until
from tests.support.heartbeat_files import of, read_log
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, Broker, NamesrvPeer, native_registration

NO_PERMISSION = 16


@pytest.mark.settings(max_connections=3, share_per_ip_percent=100)
async def test_repeated_refusals_are_counted(server: InProcess, peer: NamesrvPeer) -> None:
    """The first refusal of a kind is a whole line; after ten seconds one line counts its repetitions.

    A fenced removal and a connection over the limit are refusals, too. No signature is written.
    """
    stranger = await server.connect()
    await peer.register(MASTER)
    header = {"brokerName": "broker-a", "Signature": "c2VjcmV0"}
    for _ in range(500):
        assert (await peer.call(318, header, b"listenPort=1")).code == NO_PERMISSION
    other_agent = {"agentId": "agent-2", "registrationSeq": "1"}
    assert (await stranger.call(104, {**MASTER.ext, **other_agent}, spelling="native")).code == 0
    assert (await peer.call(105, {"topic": "T"})).code == 0
    await server.connect()
    too_many = await NamesrvPeer.connect(server.address)
    address = too_many.address
    assert await too_many.at_end()
    too_many.close()
    await server.clock.advance(WINDOW_SECONDS + 1)
    assert (await peer.call(318, header, b"listenPort=1")).code == NO_PERMISSION
    await server.stop()

    first, fenced, connection, repeated, again = of(read_log(server.data_dir / "audit"), "refusal")
    assert (first["request"], first["reason"], first["peer"]) == ("UPDATE_NAMESRV_CONFIG", "permission", peer.address)
    assert first["about"] == {"brokerName": "broker-a"}
    assert first["remark"].startswith("administration is disabled")
    assert (fenced["request"], fenced["reason"], fenced["peer"]) == ("UNREGISTER_BROKER", "fenced", stranger.address)
    found = connection["request"], connection["reason"], connection["peer"]
    assert found == ("CONNECT", "connections", address)
    assert repeated["repeated"] == 499
    assert {**repeated, "seq": 0, "ts_ms": 0} == {**first, "repeated": 499, "seq": 0, "ts_ms": 0}
    assert {**first, "seq": 0, "ts_ms": 0} == {**again, "seq": 0, "ts_ms": 0}
    files = (server.data_dir / "audit").rglob("*.jsonl*")
    assert b"c2VjcmV0" not in b"".join(path.read_bytes() for path in files)


async def test_lines_of_registrations_do_not_displace_other_lines(tmp_path: Path) -> None:
    """Lines of registrations fill half of the audit log at most; refusals and operators' changes stay."""
    limits = replace(Limits.of(Settings()), audit_retention=Retention(keep_days=90, max_bytes=32 * 1024))
    async with namesrv_in_process(tmp_path, limits=limits) as server:
        peer = await server.connect()
        assert (await peer.call(100, {"namespace": "NS", "key": "k", "value": "1"})).code == 0
        assert (await peer.call(318, None, b"listenPort=1")).code == NO_PERMISSION
        for number in range(120):
            # random names, which hardly compress
            await peer.register(Broker(os.urandom(100).hex(), addr=f"10.0.0.1:{number + 1}"))
        await until(lambda: server.audit.queued == 0)
        await server.stop()

    lines = [*Trail(server.data_dir / "audit").news()]
    kept = [line for line in lines if line.get("request") == "REGISTER_BROKER"]
    assert 0 < len(kept) < 120
    sizes = [path.stat().st_size for path in (server.data_dir / "audit").rglob("*-registrations-*")]
    # five files of a sixteenth each may still be uncompressed
    assert sum(sizes) <= 32 * 1024 * 21 // 16
    others = [line.get("request") for line in lines if line not in kept and line["event"] != "opened"]
    assert others == [None, "PUT_KV_CONFIG", "UPDATE_NAMESRV_CONFIG", None]


async def test_queue_for_the_disk_is_bounded_in_bytes(tmp_path: Path) -> None:
    """A change counts by the length of its texts."""
    stuck = tmp_path / "audit"
    # a file in place of the directory
    stuck.write_bytes(b"")
    limits = replace(Limits.of(Settings()), kv=KVLimits(max_value_bytes=32_768))
    async with namesrv_in_process(tmp_path / "data", audit_log_dir=str(stuck), limits=limits) as server:
        peer, audit = await server.connect(), server.audit
        pair = {"namespace": "NS", "key": "k", "value": "x" * 30_000}
        for counted in (60, 120):
            # the second line has the value before the change, too
            before = audit.queued
            assert (await peer.call(100, pair, spelling="native")).code == 0
            assert audit.queued - before >= counted
            pair["value"] = "y" * 30_000

        fenced = {**MASTER.ext, "agentId": "b", "registrationSeq": 2}
        await peer.register(MASTER, native_registration("T"), spelling="native", agentId="a", registrationSeq=1)
        assert (await peer.call(104, fenced, spelling="native")).code == 0
        stuck.unlink()
        await server.stop()
    assert [line["reason"] for line in of(read_log(stuck), "refusal")] == ["fenced"]


async def test_later_change_of_a_request_task_has_a_line_of_its_own(server: InProcess, peer: NamesrvPeer) -> None:
    """A task inherits the request's context; a change that it makes after the response is not booked on the request."""
    audit, is_answered = server.audit, asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def change_later() -> None:
        await is_answered.wait()
        audit.kv_changed("NS", "k", None, "1")

    async def handle(_: Request) -> Reply:
        tasks.append(asyncio.create_task(change_later()))
        return SUCCESS

    await audit.watching(handle)(Request(RemotingCommand(100), server.connection_of(peer)))
    is_answered.set()
    await tasks[0]
    await server.stop()

    (line,) = of(read_log(server.data_dir / "audit"), "change")
    assert (line["request"], line["peer"], line["changes"][0]["key"]) == (None, None, "k")


async def test_expired_removal_of_write_permission_has_no_sender(server: InProcess) -> None:
    """A removal that has expired ends with the next request that changes the tables, which is not its cause."""
    leaving = await server.connect()
    await leaving.register(OTHER)
    await server.namesrv.manager.wipe_write_perm(OTHER.name)
    await server.hang_up(leaving)
    # The scan that would end the removal comes later.
    await server.clock.advance(121.0)
    assert OTHER.name in server.namesrv.manager.tables.write_removed
    await (await server.connect()).register(MASTER)
    await server.stop()

    found = [
        (line["request"], line["peer"], [change.get("reason") for change in line["changes"]])
        for line in of(read_log(server.data_dir / "audit"), "change")
        if any(change["what"] == "write_permission" for change in line["changes"])
    ]
    assert found[-1] == (None, None, ["expired"])
