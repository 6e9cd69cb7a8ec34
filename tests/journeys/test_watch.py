"""Watches of one connection, as many as it may have open; what wakes one is in tests/namesrv/processors."""

from namesrv_remoting.bodies.dialects import NATIVE
from tests.support.daemon import Start
from tests.support.peer import Broker, Connect, Peer, until

PULL_ROUTES, SERVER_INFO = 20001, 20002


def test_many_watches_of_one_connection(start: Start, connect: Connect) -> None:
    """They hold up no other question, one registration wakes all, and those of a client that left are forgotten."""
    daemon = start()
    watcher, left, operator = (connect(daemon, native=True) for _ in range(3))
    known = watcher.call(PULL_ROUTES, topics=["orders"])

    def ask(peer: Peer, since: int) -> int:
        question = {"topics": ["orders"], "boot_id": known["boot_id"], "since": since, "wait_ms": 60_000}
        return peer.send(PULL_ROUTES, None, NATIVE.encode(question))

    def watches() -> int:
        return int(operator.call(SERVER_INFO)["watchers"])

    asked = {ask(watcher, known["revision"])}
    assert 17 == watcher.ask(105, {"topic": "orders"}).code
    asked |= {ask(watcher, known["revision"]) for _ in range(255)}
    until(lambda: watches() == 256)

    Broker().register(connect(daemon))
    assert asked == {watcher.receive().opaque for _ in range(256)}

    ask(left, known["revision"] + 1)
    until(watches)
    left.close()
    until(lambda: not watches())
