"""Checks of frames by their headers: of large frames, and of every frame over a reserved connection slot."""

from enum import Enum, auto

from namesrv.net.limits import ServerLimits
from namesrv_remoting.errors import RemoteProtocolError


class HeaderVerdict(Enum):
    """The decision of the access guard about a request whose body is not received yet."""

    ALLOWED = auto()
    REFUSED = auto()
    # The decision depends on the body.
    UNDECIDED = auto()


def check_header(code: int, size: int, limits: ServerLimits, *, largest_frame_bytes: int, may_use_slot: bool) -> None:
    """Check by its header whether a frame may be received.

    `largest_frame_bytes` is the limit for this request code; it counts if it is larger than that of a small frame.
    `may_use_slot` is False if the slot is reserved for brokers, no broker has registered over the connection, and
    brokers do not send this request before they register.

    Raises:
        RemoteProtocolError: the frame is not received, and its peer is to be refused.
    """
    if not may_use_slot:
        others = limits.max_connections - limits.reserved_connections
        raise RemoteProtocolError(f"too many connections without a broker, limit {others}", reason="connections")
    bound = min(max(largest_frame_bytes, limits.small_frame_bytes), limits.max_frame_bytes)
    if size > bound:
        message = f"frame of {size} bytes for request {code}, limit {bound}"
        raise RemoteProtocolError(message, reason="frame_too_large")
