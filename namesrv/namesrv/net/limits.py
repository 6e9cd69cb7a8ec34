"""Limits of connections and peers: amounts and timeouts.

The daemon's settings give the fields without a default, and `client_max_age_seconds` (`Limits.of` in
namesrv/settings/limits.py). The other fields are constants that operators need not change.
"""

from dataclasses import dataclass

from namesrv_remoting.frames import MAX_FRAME_BYTES, MAX_HEADER_BYTES


@dataclass(slots=True, kw_only=True)
class ServerLimits:
    """The limits of a server. A deadline of 0 seconds is off; 0 connections per address means unlimited."""

    # Java's peers refuse larger frames; a registration of this size has 77,000 topics.
    max_frame_bytes: int = MAX_FRAME_BYTES
    # Real headers are smaller than 2 KiB; the limit bounds how much the server decodes at once.
    max_header_bytes: int = MAX_HEADER_BYTES
    # Frames up to this size are received for every request; the header of a larger frame is checked first.
    small_frame_bytes: int = 64 * 1024
    max_connections: int
    # The last slots of `max_connections` are reserved for brokers: when all slots are in use, the oldest connection in
    # a reserved slot without a registration is closed to make room for a new connection.
    reserved_connections: int
    max_connections_per_ip: int
    # The most requests of one connection that wait or run, nearly all of them watches; further requests stay unread in
    # its socket.
    max_in_flight: int = 256
    # A connection is closed when its peer leaves more than this unread: responses to watches, and notices of changed
    # broker groups (905). A single response to another request may be larger, since the next response waits until the
    # peer has read it.
    write_buffer_bytes: int = 4 * 1024 * 1024
    # A new connection that has sent nothing is closed after this time: RocketMQ 5.x connects to every server in
    # advance, and may send its first request two minutes later.
    silent_seconds: float = 120.0
    # Time from the first byte to the last byte of a connection's first frame, or to the end of its header if the frame
    # is large; also the longest silence of a connection in a reserved slot without a registration.
    first_frame_seconds: float = 10.0
    # The same for other frames, and the time for which a peer may leave its responses unread. A registration of 10,000
    # topics, about 2 MB, needs half a megabit per second; a peer that trickles bytes holds memory for this time at
    # most. Time in which the server is late to read a frame extends the deadline, at most to twice its length. For a
    # large frame, the time starts anew with the wait for memory, and once more when the frame is accepted.
    whole_frame_seconds: float = 30.0
    # A connection without a registered broker is closed when nothing was received for this time. Clients request routes
    # every 30 s, but RocketMQ's clients keep connections to other servers in reserve, and close them after 120 s.
    idle_seconds: float = 600.0
    # a connection of a client is closed at about this age; 0 is off
    client_max_age_seconds: float = 0.0
    # A peer's part of the TLS handshake, from connecting, or from the first byte if the server accepts plain text, too.
    # Hellos and certificates are a few packets.
    tls_handshake_seconds: float = 5.0
    # The kernel closes a connection whose peer acknowledges nothing for this time, instead of after about 15 minutes:
    # the memory of vanished peers is freed, and a network failure of a few seconds closes no connection.
    tcp_user_timeout_seconds: float = 30.0
    proxy_protocol: bool
