"""Responses to requests for the key-value configuration (100, 101, 102)."""

from dataclasses import replace
from pathlib import Path

import pytest

from namesrv.kv import KVLimits
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import MASTER, NamesrvPeer

PUT, GET, DELETE = 100, 101, 102


def entry(namespace: str = "N", key: str = "k", value: str | None = None) -> dict[str, str]:
    """The ext fields of a request."""
    return {"namespace": namespace, "key": key, **({} if value is None else {"value": value})}


async def test_change_beyond_a_limit_names_the_field(tmp_path: Path) -> None:
    """A change beyond a limit is refused with the field's name."""
    small = KVLimits(max_value_bytes=10)
    async with namesrv_in_process(tmp_path, limits=replace(Limits.of(Settings()), kv=small)) as server:
        peer = await server.connect()

        assert (await peer.call(PUT, entry(value="12345678901"))).outcome == (
            1,
            "field value: value of 11 bytes, limit 10: '12345678901'...",
        )
        assert (await peer.call(PUT, entry(key="", value="v"))).outcome == (1, "field key is empty")


async def test_change_that_cannot_be_written_is_undone(
    server: InProcess, peer: NamesrvPeer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed write gives code 1, keeps the old value, and a later change succeeds; the log has the first failure."""
    path = tmp_path / "kvConfig.json"
    await peer.call(PUT, entry(value="old"))
    path.unlink()
    # a directory in place of the file cannot be replaced, not even by root
    path.mkdir()

    remark = "key-value configuration not written: Is a directory"
    assert (await peer.call(PUT, entry(value="new"))).outcome == (1, remark)
    assert (await peer.call(DELETE, entry())).outcome == (1, remark)
    assert (await peer.call(GET, entry())).fields == {"value": "old"}
    assert [event["path"] for event in logged(caplog, "kv_write_failed")] == [path]

    path.rmdir()
    assert (await peer.call(PUT, entry(value="new"))).outcome == (0, None)
    assert (await peer.call(GET, entry())).fields == {"value": "new"}


@pytest.mark.settings(order_message_enable=True)
async def test_only_order_configuration_changes_routes(server: InProcess, peer: NamesrvPeer) -> None:
    """Changes of other namespaces end no watch and keep cached routes; a deleted order configuration changes them."""
    await peer.register(MASTER)
    await server.forget()

    await peer.call(PUT, entry("N", "T", "v"))
    await peer.call(DELETE, entry("ORDER_TOPIC_CONFIG", "never"))
    assert server.events() == []

    for _ in range(2):
        await peer.call(PUT, entry("ORDER_TOPIC_CONFIG", "T", "v"))
        assert server.namesrv.manager.revisions.revision == 2
    await peer.call(DELETE, entry("ORDER_TOPIC_CONFIG", "T"))
    assert server.namesrv.manager.revisions.revision == 3
