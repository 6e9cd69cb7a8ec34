"""Start and stop of a server; tests/journeys tests both with a process."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from namesrv.server.controller import EXIT_FAILED, run
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded
from namesrv_runtime.log import EVENTS_PER_TICK
from tests.support.fake_clock import settle, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import Broker, NamesrvPeer

BROKER = Broker()


def test_start_fails_with_an_unreadable_kv_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An unreadable file would lose the operators' configuration: the start fails with one line and exit code 1."""
    (tmp_path / "kvConfig.json").mkdir()
    settings = Settings(listen_host="127.0.0.1", listen_port=0, http_listen="", data_dir=tmp_path)

    assert run(Loaded(settings)) == EXIT_FAILED

    (fields,) = logged(caplog, "start_failed")
    assert str(fields["error"]) == f"KV configuration {tmp_path}/kvConfig.json: Is a directory"
    assert {record.exc_info for record in caplog.records} == {None}


async def test_stopping_server_finishes_requests_in_flight(
    server: InProcess, peer: NamesrvPeer, tmp_path: Path
) -> None:
    """Received requests are answered, and their changes are on disk."""
    connection = server.connection_of(peer)
    opaques = [peer.send_request(100, {"namespace": "N", "key": f"k{number}", "value": "v"}) for number in range(20)]
    await until(lambda: connection.peer.requests == 20)

    server.controller.ask_to_stop()
    await until(lambda: connection.in_flight == 0)
    await server.stop()

    responses = [await peer.response_to(opaque) for opaque in opaques]
    assert {response.outcome for response in responses} == {(0, None)}
    assert await peer.at_end()

    table = json.loads((tmp_path / "kvConfig.json").read_bytes())["configTable"]["N"]
    assert len(table) == 20


async def test_stopping_server_leaves_slow_readers(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A peer that does not read its responses within two seconds is disconnected."""
    broker = await server.connect()
    for number in range(300):
        await broker.register(Broker(f"broker-{number:03}", 0, f"10.0.0.1:{number + 1}"))
    slow = await server.connect()
    while not server.connection_of(slow).unsent_bytes:
        slow.send_request(105, {"topic": "T"})
        await settle()

    await server.stop()

    assert logged(caplog, "drain_unfinished") == [{"seconds": 2.0}]


async def test_stopped_server_leaves_nothing_behind(tmp_path: Path) -> None:
    """A stopped server leaves no task, timer or file but its own."""
    before = asyncio.all_tasks()
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(BROKER)
        clock = server.clock
    assert asyncio.all_tasks() == before
    assert clock.sleepers == 0
    assert {path.name for path in tmp_path.iterdir()} == {"audit", "heartbeats", "lock", "snapshot.json"}


async def test_stopping_server_logs_how_many_events_have_no_line(
    server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """A last line has the number of the events of the last second that have no line of their own."""
    caplog.set_level(logging.INFO)
    for number in range(EVENTS_PER_TICK + 5):
        await peer.register(Broker(f"broker-{number:03}", 0, f"10.0.0.1:{number + 1}"))

    await server.stop()

    assert {"of": "broker_registered", "more": 5} in logged(caplog, "events_not_logged")
