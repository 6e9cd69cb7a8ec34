"""How much may one peer ask of a server, and how long may it take?

The numbers come from the limits table of the security notes; each is a setting of the daemon.
"""

from dataclasses import dataclass

from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES


@dataclass(slots=True, frozen=True)
class ServerLimits:
    """The bounds of a server. Seconds of 0 switch a deadline off; 0 connections per address means no bound."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    max_header_bytes: int = MAX_HEADER_BYTES
    max_connections: int = 10_000
    max_connections_per_ip: int = 0
    # ordinary requests of one connection that wait or run; beyond it nothing more is read from the peer
    max_in_flight: int = 256
    # what may wait to be sent to a peer before it counts as one that does not read
    write_buffer_bytes: int = 4 * 1024 * 1024
    # a connection that has not sent its first frame by then is closed
    first_frame_seconds: float = 10.0
    # from the first byte of a frame to its last; also how long a peer may leave its answers unread
    whole_frame_seconds: float = 30.0
    # nothing received for that long; off, because it would evict a broker before the scan does
    idle_seconds: float = 0.0
    tcp_user_timeout_seconds: float = 30.0
    proxy_protocol: bool = False
