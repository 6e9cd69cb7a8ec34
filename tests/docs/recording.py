"""Responses of a real server to the examples of docs/protocol.md."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from io import BufferedReader
from typing import Final

from namesrv_remoting.frames import HEAD
from namesrv_remoting.serializers import encode_command
from tests.docs.wire_examples import BOOT_ID, EXCHANGES, NAME, STARTED, Exchange
from tests.support.daemon import Daemon
from tests.support.peer import Peer, until

# The server's name on the page.
NAMED: Final = f"--nameserver-name={NAME}"


def requests() -> dict[str, bytes]:
    """The encoded frame of each request."""
    return {exchange.name: encode_command(exchange.request) for exchange in EXCHANGES}


def responses(daemon: Daemon, requests: Mapping[str, bytes]) -> dict[str, bytes]:
    """The frame of each response, with the page's boot id and start in place of the server's."""
    recorded: dict[str, bytes] = {}
    held: list[Exchange] = []
    with ExitStack() as stack:
        peers = {name: stack.enter_context(RecordedPeer(daemon.address)) for name in ("broker", "client")}
        info = stack.enter_context(Peer(daemon.address, native=True))
        about = info.call(20002)
        own = about["boot_id"].encode()
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(about["started_ms"] // 1000)).encode()
        assert (len(own), len(started)) == (len(BOOT_ID), len(STARTED))
        for exchange in EXCHANGES:
            peer = peers[exchange.connection]
            peer.send_bytes(requests[exchange.name].replace(BOOT_ID.encode(), own))
            if exchange.is_held:
                until(lambda: info.call(20002)["watchers"])
                held.append(exchange)
                continue
            for each in (exchange, *held):
                frame = peers[each.connection].receive_frame()
                recorded[each.name] = frame.replace(own, BOOT_ID.encode()).replace(started, STARTED.encode())
            held.clear()
    return recorded


class RecordedPeer(Peer):
    """A connection that returns undecoded frames."""

    @cached_property
    def _stream(self) -> BufferedReader:
        return self._socket.makefile("rb")

    def receive_frame(self) -> bytes:
        head = self._stream.read(HEAD.size)
        return head + self._stream.read(HEAD.unpack(head)[0] - 4)

    def close(self) -> None:
        self._stream.close()
        super().close()
