"""Deadlines of one connection: for a frame, a TLS handshake, reading the responses, silence, and age."""

import random
from typing import Final

from namesrv.net.limits import ServerLimits
from namesrv_remoting.errors import RemoteProtocolError

NEVER: Final = float("inf")
# The age at which a client's connection is closed is the limit times a random factor in this range: clients that
# connected together leave one by one.
_AGE_FACTORS: Final = (0.8, 1.2)
# A connection is closed for its age only when the peer has been quiet for this time, which shows that no burst of
# requests is under way: RocketMQ's clients request the route of the next topic, or of TBW102, as soon as a response has
# arrived.
_QUIET_SECONDS: Final = 0.2


class Deadlines:
    """The times at which the peer is late; all times are monotonic, and callers pass `now`."""

    __slots__ = (
        "_age_factor",
        "_handshake_left",
        "_is_in_handshake",
        "_limits",
        "_spare_seconds",
        "frame_deadline",
        "opened_at",
        "quiet_since",
        "waiting_since",
        "write_deadline",
    )

    def __init__(self, limits: ServerLimits, now: float) -> None:
        self._limits = limits
        # time at which the connection was accepted
        self.opened_at = now
        # the age at which the connection is closed if its peer is a client, as a multiple of the limit
        self._age_factor = random.uniform(*_AGE_FACTORS)
        # Time of the last read that received data. The end of a delay by the server itself counts like a read: a step
        # of the TLS handshake, or a wait for the memory of a large frame.
        self.quiet_since = now
        # time at which the current frame or handshake has to be complete
        self.frame_deadline = NEVER
        # seconds by which `frame_deadline` may still be extended
        self._spare_seconds = 0.0
        # time since which the connection waits for its share of the event loop; NEVER while it does not wait
        self.waiting_since = NEVER
        # time at which the peer has to have read its responses
        self.write_deadline = NEVER
        self._is_in_handshake = False
        # the peer's remaining seconds for the handshake while the deadline is held; None while the deadline runs
        self._handshake_left: float | None = None

    def __repr__(self) -> str:
        frame, write, quiet = self.frame_deadline, self.write_deadline, self.quiet_since
        return f"<Deadlines [frame {frame:.1f} | write {write:.1f} | quiet since {quiet:.1f}]>"

    # -- frames ------------------------------------------------------------------------------------------------------

    def frame_began(self, now: float, *, is_first: bool) -> None:
        """Start the deadline of a frame, unless it runs already."""
        if self.frame_deadline == NEVER:
            limits = self._limits
            self._start(now, limits.first_frame_seconds if is_first else limits.whole_frame_seconds)

    def frame_ended(self) -> None:
        """Clear the deadline of a frame, but not of a handshake: a PROXY header may end during the handshake."""
        if not self._is_in_handshake:
            self.frame_deadline = NEVER

    def is_frame_late(self, now: float) -> bool:
        """Whether the deadline of the current frame or handshake has passed.

        While the connection waits for its share of the event loop, only a deadline that passed before the wait counts.
        """
        return self.frame_deadline < min(now, self.waiting_since)

    def extend(self, seconds: float) -> bool:
        """Extend the deadline, since the server was late to read; False once it was extended by its own length.

        The extension is bounded because a peer can keep the server busy with other connections of its address.
        """
        extension = min(seconds, self._spare_seconds)
        self._spare_seconds -= extension
        self.frame_deadline += extension
        return extension > 0

    @property
    def is_waiting(self) -> bool:
        """Whether the connection waits for its share of the event loop, and so reads nothing from the peer."""
        return self.waiting_since != NEVER

    def wait_began(self, now: float) -> None:
        """Note that the server does not read until the connection has a share of the event loop again."""
        self.waiting_since = now

    def wait_ended(self, now: float) -> None:
        """Extend the deadline of the frame by the wait, during which the server did not read."""
        self.extend(now - self.waiting_since)
        self.waiting_since = NEVER

    def _start(self, now: float, seconds: float) -> None:
        self.frame_deadline = _deadline(now, seconds)
        self._spare_seconds = seconds

    def late_frame(self, *, is_first: bool) -> RemoteProtocolError:
        """The error to report when `frame_deadline` has passed."""
        if self._is_in_handshake:
            return RemoteProtocolError("timed out waiting for the TLS handshake", reason="tls")
        what = "first frame" if is_first else "rest of a frame"
        return RemoteProtocolError(f"timed out waiting for the {what}", reason="slow_frame")

    # -- silence -----------------------------------------------------------------------------------------------------

    def silence(
        self, now: float, *, has_sent_request: bool, must_register: bool, may_be_idle: bool
    ) -> RemoteProtocolError | None:
        """The error to report if nothing was received for too long between two frames, else None."""
        limits, reason = self._limits, "silent"
        seconds = limits.first_frame_seconds if must_register else limits.silent_seconds
        if has_sent_request and not must_register:
            seconds, reason = 0.0 if may_be_idle else limits.idle_seconds, "idle"
        if seconds and self.quiet_since + seconds < now:
            return RemoteProtocolError(f"nothing received for {seconds:g} s", reason=reason)
        return None

    # -- age ---------------------------------------------------------------------------------------------------------

    def age_left(self, now: float) -> float:
        """The seconds until the connection of a client is due to be closed for its age; infinite without a limit."""
        most = self._limits.client_max_age_seconds
        return self.opened_at + most * self._age_factor - now if most else NEVER

    def may_close_for_age(self, now: float) -> bool:
        """True if a connection that is due may be closed: its peer is quiet, or it is overdue by the limit again."""
        return self.quiet_since + _QUIET_SECONDS <= now or self.age_left(now) <= -self._limits.client_max_age_seconds

    # -- responses ---------------------------------------------------------------------------------------------------

    def writing_paused(self, now: float) -> None:
        """Start the deadline for the peer to read its responses, which is as long as the one for a frame."""
        self.write_deadline = _deadline(now, self._limits.whole_frame_seconds)

    def writing_resumed(self) -> None:
        """Clear the deadline: all responses are sent, or dropped."""
        self.write_deadline = NEVER

    # -- the TLS handshake --------------------------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether the deadline is held, since a handshake step of the server is queued or running."""
        return self._handshake_left is not None

    def handshake_began(self, now: float) -> None:
        """Start the deadline of the TLS handshake, unless it runs already."""
        if not self._is_in_handshake:
            self._is_in_handshake = True
            self._start(now, self._limits.tls_handshake_seconds)

    def hold(self, now: float) -> None:
        """Hold the deadline: the time of the server's own handshake step does not count against the peer."""
        self._handshake_left = self.frame_deadline - now
        self.frame_deadline = NEVER

    def resume(self, now: float) -> None:
        """Let the deadline run with the remaining seconds: the peer can continue the handshake."""
        left, self._handshake_left = self._handshake_left or 0.0, None
        self.quiet_since = now
        self.frame_deadline = now + left

    def handshake_over(self, now: float) -> None:
        """Clear the deadline: the handshake is complete, or the peer sent plain text instead; frames follow."""
        self._is_in_handshake = False
        self.frame_deadline = NEVER
        self.quiet_since = now


def _deadline(now: float, seconds: float) -> float:
    # A limit of 0 seconds is off.
    return now + seconds if seconds else NEVER
