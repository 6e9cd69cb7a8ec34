"""Every change that an operator asks for is one line in the log, with who asked."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker

BROKER = Broker()
CHANGES: list[tuple[int, str, dict[str, Any], bytes]] = [
    (100, "PUT_KV_CONFIG", {"namespace": "n", "key": "k", "value": "v"}, b""),
    (102, "DELETE_KV_CONFIG", {"namespace": "n", "key": "k"}, b""),
    (205, "WIPE_WRITE_PERM_OF_BROKER", {"brokerName": "broker-a"}, b""),
    (327, "ADD_WRITE_PERM_OF_BROKER", {"brokerName": "broker-a"}, b""),
    (217, "REGISTER_TOPIC_IN_NAMESRV", {"topic": "new"}, b""),
    (216, "DELETE_TOPIC_IN_NAMESRV", {"topic": "T"}, b""),
    (318, "UPDATE_NAMESRV_CONFIG", {}, b"enableTopicList=false"),
    (104, "UNREGISTER_BROKER", BROKER.ext, b""),
]


async def test_changes_are_logged_with_who_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that succeed; what only reads, what is refused and what brokers say of themselves is no such change."""
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path, admin_enabled=True) as server:
        own, operator = await server.connect(), await server.connect()
        await own.register(BROKER)
        await operator.call(106)
        await operator.call(205, {})
        await own.call(104, {**BROKER.ext, "brokerName": "nobody"})
        for code, _, ext, body in CHANGES:
            assert 0 == (await operator.call(code, ext, body)).code
        await own.register(BROKER)
        await own.call(104, BROKER.ext)

    lines = [(r.levelno, vars(r)["fields"]) for r in caplog.records if r.msg == "operator_changed"]
    assert [name for _, name, _, _ in CHANGES] == [fields["request"] for _, fields in lines]
    for (_, _, ext, body), (level, fields) in zip(CHANGES, lines, strict=True):
        assert (logging.INFO, operator.address, None) == (level, fields["peer"], fields["proxied"])
        assert ({**ext, "settings": body.decode()} if body else ext) == fields["asked"]
    assert ["admin"] * 7 == [fields["role"] for _, fields in lines[:7]]
