"""Limits of one peer: amounts and timeouts.

The numbers come from the limits table of the security notes; each is a setting of the daemon.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from namesrv_remoting.codes import RequestCode
from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES

# what a broker begins with, and what its agent may ask before
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


def _large_frames() -> dict[int, int]:
    return {
        # about 77,000 topics, as many as any broker of Apache's can send
        RequestCode.REGISTER_BROKER: MAX_FRAME_BYTES,
        # a client with 10,000 topics sends 400 KiB
        RequestCode.PULL_ROUTES: 4 * 1024 * 1024,
        # the queues of a topic on every broker
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: 1024 * 1024,
    }


@dataclass(slots=True)
class ServerLimits:
    """The bounds of a server. Seconds of 0 switch a deadline off; 0 connections per address means no bound."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    max_header_bytes: int = MAX_HEADER_BYTES
    # Up to here a frame is received whatever it asks; a larger one only after its header, for these request codes,
    # and up to the bound of its code.
    small_frame_bytes: int = 64 * 1024
    large_frames: Mapping[int, int] = field(default_factory=_large_frames)
    max_connections: int = 10_000
    # the last of them are for brokers: who takes one has to begin like one, soon
    reserved_connections: int = 0
    max_connections_per_ip: int = 0
    # ordinary requests of one connection that wait or run; beyond it nothing more is read from the peer
    max_in_flight: int = 256
    # what may wait to be sent to a peer before it counts as one that does not read
    write_buffer_bytes: int = 4 * 1024 * 1024
    # a connection that says nothing is closed then; peers connect in advance and are silent for up to two minutes
    silent_seconds: float = 120.0
    # from the first byte of a connection's first frame to its last
    first_frame_seconds: float = 10.0
    # the same for those that follow; also how long a peer may leave its answers unread
    whole_frame_seconds: float = 30.0
    # nothing received for that long from a peer that has registered nothing
    idle_seconds: float = 0.0
    tcp_user_timeout_seconds: float = 30.0
    proxy_protocol: bool = False
