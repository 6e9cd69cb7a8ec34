"""Writer and reader of the heartbeat log keep the contract of docs/heartbeat-log.md.

Writer and reader declare the fields separately. The lines come from a real server and a real client, which write every
kind of line.
"""

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

from namesrv.routeinfo.tables.records import BrokerAddrInfo
from namesrv_spark_jobs.transforms import schema as schemas
from tests.support.heartbeat_files import Line, read_log
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker, registration
from tests.support.route_clients import route_client

PAGE: Final = Path(__file__).parents[2] / "docs" / "heartbeat-log.md"

A, B, C = Broker(), Broker("broker-b", addr="10.0.0.2:10911"), Broker("broker-c", addr="10.0.0.3:10911")
PULL, UNREGISTER, HEARTBEAT = 105, 104, 904

# Types of JSON values that each column type reads without loss.
_READ_AS: Final[dict[str, tuple[type, ...]]] = {
    "bigint": (int,),
    "double": (int, float),
    "string": (str, list, int),
}
# Fields for people and for other readers; the report ignores them.
_UNREAD: Final = {
    "data_version",
    "dropped",
    "evict_on_disconnect",
    "for_ms",
    "kind",
    "last_seq",
    "server_boot_id",
}


async def written_lines(root: Path) -> list[Line]:
    """Let a server and a client write lines of every kind."""
    async with namesrv_in_process(root / "server", notify_min_broker_id_changed=True) as server:
        clock, namesrv = server.clock, server.namesrv
        a, b, c = await server.connect(), await server.connect(), await server.connect()
        await a.register(A, registration("T", "U"))
        await b.register(B, registration(*(f"topic-{number}" for number in range(5_000))))
        await c.call(PULL, {"topic": "T"})
        await a.call(HEARTBEAT, A.ext)
        async with route_client(
            clock, server, heartbeat_log_dir=root / "client", client_name="client-1", fault_tolerance=True
        ) as client:
            await client.route("T")
            client.report("broker-a", 0.1, failed=True)
        await clock.advance(50.0)
        await c.call(PULL, {"topic": "T"})
        # A new hour opens a new file.
        clock.step_wall(3600.0)
        clock.stall(5.0)
        await clock.advance(11.0)
        await a.call(UNREGISTER, A.ext)
        assert namesrv.heartbeat_log is not None
        log = namesrv.heartbeat_log
        # Two brokers are due; the second one sends a heartbeat while the first one is evicted.
        await a.register(C)
        clock.stall(130.0)
        scan = asyncio.create_task(namesrv.manager.evict_silent())
        await clock.sleep(0)
        namesrv.manager.touch(BrokerAddrInfo(C.cluster, C.addr), server.connection_of(a).id)
        await scan
        await server.hang_up(c)
        # A queue that is full for a moment.
        queue = log.lines._queue
        queue._max_queued, limit = 0, queue._max_queued
        await a.call(HEARTBEAT, C.ext)
        queue._max_queued = limit
        await a.call(HEARTBEAT, C.ext)
    return read_log(root / "server" / "heartbeats") + read_log(root / "client")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The written lines, made once for all tests."""
    # A separate loop, since fixtures of a module outlive the loops of tests.
    return asyncio.run(written_lines(tmp_path_factory.mktemp("contract")))


def test_every_kind_of_line_is_written_and_on_the_page(lines: list[Line]) -> None:
    """The events in the page's tables are the written ones, and the ones that the reader knows."""
    text = PAGE.read_text().partition("## Events")[2]
    named = {name for row in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}

    assert set(schemas.EVENTS) == {line["event"] for line in lines} == named


def test_every_field_is_read_or_known_to_be_unread(lines: list[Line]) -> None:
    """Every written field is read or listed as ignored, and is on the page in backquotes."""
    written = {name for line in lines for name in line}

    assert written == schemas.LINE.keys() | _UNREAD
    assert set() == written - set(re.findall(r"`\"?(\w+)\"?", PAGE.read_text()))


def test_every_value_is_of_the_type_that_is_read(lines: list[Line]) -> None:
    """Fields have the types that the reader expects; absent values are null; required fields are present."""
    for line in lines:
        assert {*schemas.REQUIRED, "nameserver"} <= line.keys()
        assert line["v"] == schemas.VERSION
        # The reader has a resolution of a microsecond.
        assert round(line["mono_ms"], 3) == line["mono_ms"]
        for name, value in line.items():
            if name in schemas.LINE and value is not None:
                assert isinstance(value, _READ_AS[schemas.LINE[name]]), (line["event"], name, value)
