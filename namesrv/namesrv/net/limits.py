"""Limits of one peer: amounts and timeouts.

Settings of the daemon give those without a default; no operator has a reason to change the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from namesrv_remoting.codes import RequestCode
from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES

# Requests over a reserved connection slot before a registration: what brokers send, and what agents ask first.
BROKER_CODES: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
    }
)
PROBING_CODES: Final = frozenset({RequestCode.SERVER_INFO})


# The largest frames that are received for each request; for all others small_frame_bytes is the bound.
LARGE_FRAMES: Final[Mapping[int, int]] = {
    # about 77,000 topics, as many as any broker of Apache's can send
    RequestCode.REGISTER_BROKER: MAX_FRAME_BYTES,
    # a client with 10,000 topics sends 400 KiB
    RequestCode.PULL_ROUTES: 4 * 1024 * 1024,
    # the queues of a topic on every broker
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: 1024 * 1024,
}


@dataclass(slots=True, kw_only=True)
class ServerLimits:
    """The bounds of a server. Seconds of 0 switch a deadline off; 0 connections per address means no bound."""

    max_frame_bytes: int
    # real headers stay below 2 KiB; a larger one makes the server decode more at once
    max_header_bytes: int = MAX_HEADER_BYTES
    # Up to here a frame is received whatever it asks; a larger one only after its header.
    small_frame_bytes: int = 64 * 1024
    large_frames: Mapping[int, int] = field(default_factory=lambda: LARGE_FRAMES)
    max_connections: int
    # the last of them are for brokers: the oldest without a registration makes room for the next connection
    reserved_connections: int
    max_connections_per_ip: int
    # Requests of one connection that wait or run; more wait in its socket. Clients that pipeline send a few dozen.
    max_in_flight: int = 256
    # Notices and changes of watches that exceed this while a peer does not read close its connection. An ordinary
    # response may be larger: a peer gets no further one before it has read the last.
    write_buffer_bytes: int = 4 * 1024 * 1024
    # A new connection that has sent nothing is closed then: RocketMQ 5.x connects to every server in advance, and may
    # send its first request two minutes later.
    silent_seconds: float = 120.0
    # from the first byte of a connection's first frame to its last
    first_frame_seconds: float
    # the same for those that follow; also how long a peer may leave its answers unread
    whole_frame_seconds: float
    # nothing received for that long from a peer that has registered nothing
    idle_seconds: float
    # from connecting, or where plain peers are let in from the first byte, to the end of the TLS handshake
    tls_handshake_seconds: float
    # The kernel gives up a connection whose peer acknowledges nothing for so long, instead of after about 15 minutes:
    # vanished peers free their memory, and a network failure of a few seconds closes no connection.
    tcp_user_timeout_seconds: float = 30.0
    proxy_protocol: bool
