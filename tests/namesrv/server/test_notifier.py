"""Members of a group that cannot be told of its smallest id (905); who can be is in tests/journeys."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from namesrv.server.notifier import TIMEOUT_SECONDS
from tests.support.dead_ends import full_queue, refusing_port
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import Broker
from tests.support.raw_peer import until

ACTING: dict[str, Any] = {"enableActingMaster": "true"}
MASTER = Broker()


@contextmanager
def refusing() -> Iterator[str]:
    """An address that nobody listens on: the broker may have died a moment ago."""
    with refusing_port() as bound:
        host, port = bound.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("addr", ["no address", "127.0.0.1:99999", "[::1]", refusing, full_queue])
@pytest.mark.settings(notify_min_broker_id_changed=True)
async def test_member_that_cannot_be_reached_is_let_be(
    server: InProcess, addr: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker names its own address, and nobody checks it before: one line; nobody waits, and the server goes on."""
    caplog.set_level(logging.INFO)

    def failed() -> list[str]:
        records = [record for record in caplog.records if record.msg == "min_broker_id_not_notified"]
        return [vars(record)["fields"]["broker_addr"] for record in records]

    async def check(addr: str) -> None:
        master, slave = await server.connect(), await server.connect()
        await master.register(MASTER, **ACTING)
        await slave.register(Broker(id=1, addr=addr), **ACTING)
        assert 0 == (await master.call(104, MASTER.ext)).code
        assert 0 == (await slave.call(105, {"topic": "T"})).code
        # one that does not accept is given up when the time for connecting is over
        await server.clock.advance(TIMEOUT_SECONDS)
        await until(failed)
        assert [addr] == failed()

    if isinstance(addr, str):
        await check(addr)
    else:
        with addr() as place:
            await check(place)
