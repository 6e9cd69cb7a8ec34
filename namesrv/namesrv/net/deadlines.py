"""Deadlines of one connection: for a frame, for reading responses, for a TLS handshake, and for silence."""

from typing import Final

from namesrv.net.limits import ServerLimits
from namesrv_remoting.errors import RemoteProtocolError

NEVER: Final = float("inf")


class Deadlines:
    """When the peer is late with something; times are monotonic, and `now` is passed in."""

    __slots__ = ("_handshake_left", "_is_in_handshake", "_limits", "frame_ends", "last_read", "write_ends")

    def __init__(self, limits: ServerLimits, now: float) -> None:
        self._limits = limits
        # when something was received last
        self.last_read = now
        # when the frame or the handshake that has begun has to be complete
        self.frame_ends = NEVER
        # when the peer has to have read its responses
        self.write_ends = NEVER
        self._is_in_handshake = False
        # the seconds that the peer has left for its handshake while the server computes; None while it does not
        self._handshake_left: float | None = None

    def __repr__(self) -> str:
        return f"<Deadlines [frame {self.frame_ends:.1f} | write {self.write_ends:.1f} | read {self.last_read:.1f}]>"

    # -- frames ------------------------------------------------------------------------------------------------------

    def frame_began(self, *, is_first: bool) -> None:
        """The peer has begun a frame with the last read, unless it had begun before."""
        if self.frame_ends == NEVER:
            limits = self._limits
            seconds = limits.first_frame_seconds if is_first else limits.whole_frame_seconds
            self.frame_ends = self.last_read + seconds if seconds else NEVER

    def frame_ended(self) -> None:
        """The peer owes nothing more of a frame."""
        self.frame_ends = NEVER

    def late_frame(self, *, is_first: bool) -> RemoteProtocolError:
        """What is wrong when `frame_ends` has passed."""
        if self._is_in_handshake:
            return RemoteProtocolError("timed out waiting for the TLS handshake", reason="tls")
        what = "first frame" if is_first else "rest of a frame"
        return RemoteProtocolError(f"timed out waiting for the {what}", reason="slow_frame")

    # -- silence -----------------------------------------------------------------------------------------------------

    def silence(
        self, now: float, *, has_spoken: bool, must_register: bool, may_be_idle: bool
    ) -> RemoteProtocolError | None:
        """What is wrong if nothing was received for too long, between two frames."""
        limits, reason = self._limits, "silent"
        seconds = limits.first_frame_seconds if must_register else limits.silent_seconds
        if has_spoken and not must_register:
            seconds, reason = 0.0 if may_be_idle else limits.idle_seconds, "idle"
        if seconds and self.last_read + seconds < now:
            return RemoteProtocolError(f"nothing received for {seconds:g} s", reason=reason)
        return None

    # -- responses ---------------------------------------------------------------------------------------------------

    def writing_paused(self, now: float) -> None:
        """Responses are unsent: the peer has as long as for a frame to read them."""
        seconds = self._limits.whole_frame_seconds
        self.write_ends = now + seconds if seconds else NEVER

    def writing_resumed(self) -> None:
        """The peer has read everything."""
        self.write_ends = NEVER

    # -- the TLS handshake --------------------------------------------------------------------------------------------

    @property
    def is_handshake_stopped(self) -> bool:
        """Whether the server computes a step of the handshake, or will."""
        return self._handshake_left is not None

    def handshake_began(self, now: float) -> None:
        """The peer has to complete a handshake."""
        self._is_in_handshake = True
        self.frame_ends = min(self.frame_ends, now + self._limits.tls_handshake_seconds)

    def handshake_stopped(self, now: float) -> None:
        """The server computes a step of the handshake, or will: that time is not the peer's."""
        self._handshake_left = self.frame_ends - now
        self.frame_ends = NEVER

    def handshake_resumed(self, now: float) -> None:
        """The peer may go on, and could not do so before."""
        left, self._handshake_left = self._handshake_left or 0.0, None
        self.last_read = now
        self.frame_ends = now + left

    def handshake_over(self, now: float) -> None:
        """The handshake is complete, or plain text has come instead; frames follow."""
        self._is_in_handshake = False
        self.frame_ends = NEVER
        self.last_read = now
