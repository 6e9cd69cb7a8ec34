"""KV configuration that a server confirmed survives whatever happens to the server."""

import json
from pathlib import Path

import pytest

from tests.support.daemon import Start
from tests.support.peer import Connect, Peer

# nothing here depends on the loop
pytestmark = pytest.mark.parametrize("loop", ["auto"])

PUT, GET, DELETE, LIST = 100, 101, 102, 219
NOT_FOUND = 22


def put(peer: Peer, key: str, value: str) -> int:
    """Put into namespace NS; the code of the answer."""
    return peer.ask(PUT, {"namespace": "NS", "key": key, "value": value}).code


def namespace(peer: Peer, name: str = "NS") -> dict[str, str]:
    """Keys and values of a namespace; empty if there is none."""
    answer = peer.ask(LIST, {"namespace": name})
    if answer.code == NOT_FOUND:
        return {}
    assert 0 == answer.code, answer
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def codes_until_the_end(peer: Peer) -> list[int]:
    """The codes of all answers that come before the end of the connection."""
    codes: list[int] = []
    try:
        while True:
            codes.append(peer.receive().code)
    except EOFError:
        return codes


def test_confirmed_puts_survive_a_kill(start: Start, connect: Connect) -> None:
    """A server is killed while four peers put: whatever was answered is there after the restart."""
    daemon = start()
    writers = [connect(daemon) for _ in range(4)]
    for writer, peer in enumerate(writers):
        for number in range(100):
            peer.send(PUT, {"namespace": f"NS{writer}", "key": f"k{number}", "value": f"v{number}"})
    first = [writers[0].receive().code for _ in range(20)]
    daemon.kill()
    codes = [codes_until_the_end(peer) for peer in writers]
    codes[0] = first + codes[0]

    peer = connect(start())
    for writer, answered in enumerate(codes):
        # one connection is answered in the order in which it asks
        confirmed = {f"k{number}": f"v{number}" for number in range(len(answered))}
        assert {0} >= set(answered)
        assert confirmed.items() <= namespace(peer, f"NS{writer}").items()


def test_changes_survive_restarts(start: Start, connect: Connect) -> None:
    """What was put, replaced and deleted is so after an end in good order and after a kill."""
    daemon = start()
    peer = connect(daemon)
    assert [0, 0, 0] == [put(peer, "a", "1"), put(peer, "b", 'ä \\ " 2'), put(peer, "a", "3")]
    assert 0 == daemon.stop()

    daemon = start()
    peer = connect(daemon)
    assert {"a": "3", "b": 'ä \\ " 2'} == namespace(peer)
    assert 0 == peer.ask(DELETE, {"namespace": "NS", "key": "a"}).code
    daemon.kill()

    assert {"b": 'ä \\ " 2'} == namespace(connect(start()))


def test_file_that_was_there(start: Start, connect: Connect, data_dir: Path) -> None:
    """That of an Apache NameServer is read; a damaged one is kept under another name, said so in one line."""
    data_dir.mkdir()
    file = data_dir / "kvConfig.json"
    file.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4"}}}')
    daemon = start("--order-message-enable")
    assert {"orders": "broker-a:4"} == namespace(connect(daemon), "ORDER_TOPIC_CONFIG")
    daemon.stop()
    file.write_bytes(b'{"configTable":{"NS":{"a":')

    daemon = start()

    line = daemon.wait_for("damaged_file_set_aside", level="warning", path=str(file))
    assert line["kept_as"].startswith(f"{file}.damaged-")
    assert line["reason"]
    peer = connect(daemon)
    assert ({}, 0, {"a": "1"}) == (namespace(peer), put(peer, "a", "1"), namespace(peer))
    assert b'{"configTable":{"NS":{"a":' == Path(line["kept_as"]).read_bytes()


def test_put_that_cannot_be_written_is_refused(start: Start, connect: Connect, data_dir: Path) -> None:
    """When the directory has gone the put is refused, what was there stays, and the server goes on."""
    daemon = start()
    peer = connect(daemon)
    assert 0 == put(peer, "a", "1")
    data_dir.rename(data_dir.with_name("gone"))

    answer = peer.ask(PUT, {"namespace": "NS", "key": "b", "value": "2"})

    assert (1, "key-value configuration not written: No such file or directory") == (answer.code, answer.remark)
    assert {"a": "1"} == namespace(peer)
    assert "error" == daemon.wait_for("kv_write_failed")["level"]
    data_dir.with_name("gone").rename(data_dir)
    assert 0 == put(peer, "b", "2")
