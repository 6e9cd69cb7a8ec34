"""Responses to requests for the key-value configuration (100, 101, 102, 219), in every serialization."""

from dataclasses import replace
from pathlib import Path

import pytest

from namesrv.kv import KVLimits
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import MASTER, NamesrvPeer, Spelling

PUT, GET, DELETE, LIST = 100, 101, 102, 219


def entry(namespace: str = "N", key: str = "k", value: str | None = None) -> dict[str, str]:
    """The ext fields of a request."""
    return {"namespace": namespace, "key": key, **({} if value is None else {"value": value})}


async def test_value_is_put_got_listed_and_deleted(peer: NamesrvPeer, spelling: Spelling) -> None:
    """An emptied namespace stays as an empty table, and deleting an absent key succeeds."""
    for key, text in (("k", "v"), ("l", "w"), ("k", "new")):
        response = await peer.call(PUT, entry(key=key, value=text), spelling=spelling)
        assert (*response.outcome, response.fields, response.body) == (0, None, {}, b"")

    response = await peer.call(GET, entry(), spelling=spelling)
    assert (*response.outcome, response.fields, response.body) == (0, None, {"value": "new"}, b"")
    response = await peer.call(LIST, {"namespace": "N"}, spelling=spelling)
    assert (*response.outcome, response.fields) == (0, None, {})
    assert response.value == {"table": {"k": "new", "l": "w"}}

    for key in ("k", "l", "k", "never"):
        assert (await peer.call(DELETE, entry(key=key), spelling=spelling)).outcome == (0, None)
    assert (await peer.call(LIST, {"namespace": "N"}, spelling=spelling)).value == {"table": {}}
    assert (await peer.call(DELETE, entry(namespace="never"), spelling=spelling)).outcome == (0, None)


async def test_absent_key_or_namespace_is_not_found(peer: NamesrvPeer, spelling: Spelling) -> None:
    """An absent key or namespace gets code 22 with Java's remark."""
    response = await peer.call(GET, entry(), spelling=spelling)
    assert (*response.outcome, response.fields) == (22, "No config item, Namespace: N Key: k", {})
    response = await peer.call(LIST, {"namespace": "N"}, spelling=spelling)
    assert (*response.outcome, response.fields) == (22, "No config item, Namespace: N", {})
    # in Java the response to 101 has a header class, and that to 219 has not
    assert ((await peer.call(GET, entry())).ext_fields, (await peer.call(LIST, entry())).ext_fields) == ({}, None)


async def test_missing_field_is_refused(tmp_path: Path, spelling: Spelling) -> None:
    """A missing field changes nothing, unlike in Java, which stores null for a missing value."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        for code, ext, remark in (
            (PUT, {"key": "k", "value": "v"}, "namespace or key is null"),
            (PUT, {"namespace": "N", "value": "v"}, "namespace or key is null"),
            (PUT, None, "namespace or key is null"),
            (PUT, {"namespace": "N", "key": "k"}, "field value is missing"),
            (GET, {"namespace": "N"}, "field key is missing"),
            (GET, None, "field namespace is missing"),
            (DELETE, {"key": "k"}, "field namespace is missing"),
            (LIST, None, "field namespace is missing"),
        ):
            assert (await peer.call(code, ext, spelling=spelling)).outcome == (1, remark)
        assert (await peer.call(LIST, {"namespace": "N"}, spelling=spelling)).code == 22
        assert not (tmp_path / "kvConfig.json").exists()


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


async def test_change_that_cannot_be_written_is_undone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failed write gives code 1 and an error in the log, keeps the old value, and a later change succeeds."""
    path = tmp_path / "kvConfig.json"
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.call(PUT, entry(value="old"))
        path.unlink()
        # a directory in place of the file cannot be replaced, not even by root
        path.mkdir()

        remark = "key-value configuration not written: Is a directory"
        assert (await peer.call(PUT, entry(value="new"))).outcome == (1, remark)
        assert (await peer.call(DELETE, entry())).outcome == (1, remark)
        assert (await peer.call(GET, entry())).fields == {"value": "old"}
        assert [path] * 2 == [event["path"] for event in logged(caplog, "kv_write_failed")]

        path.rmdir()
        assert (await peer.call(PUT, entry(value="new"))).outcome == (0, None)
        assert (await peer.call(GET, entry())).fields == {"value": "new"}


@pytest.mark.settings(order_message_enable=True)
async def test_only_order_configuration_changes_routes(server: InProcess, peer: NamesrvPeer) -> None:
    """Changes of other namespaces end no watch and keep cached routes."""
    await peer.register(MASTER)
    await server.forget()

    await peer.call(PUT, entry("N", "T", "v"))
    await peer.call(DELETE, entry("ORDER_TOPIC_CONFIG", "never"))
    assert server.events() == []

    for _ in range(2):
        await peer.call(PUT, entry("ORDER_TOPIC_CONFIG", "T", "v"))
        assert server.namesrv.manager.revisions.revision == 2
