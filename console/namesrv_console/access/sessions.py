"""Sessions of signed-in users, in memory: the browser's signed cookie holds only an id, so an ended session is over."""

import secrets
from dataclasses import dataclass
from typing import Final

from namesrv_console.access.users import User
from namesrv_runtime.clock import Clock

# More sessions than any console has; beyond this number the oldest session ends.
_MAX_SESSIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a user who signed in."""

    # The user at sign-in; for a user with a password, the role in the users file counts.
    user: User
    ends_at: float
    # The hash that the password matched; a changed hash in the users file ends the session.
    password_hash: str = ""


class Sessions:
    """The sessions of this process; a restart ends them all."""

    def __init__(self, lifetime_seconds: float, clock: Clock) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        # Session id -> session, the oldest first.
        self._sessions: dict[str, Session] = {}

    def __repr__(self) -> str:
        return f"<Sessions [{len(self._sessions)}]>"

    def begin(self, user: User, password_hash: str = "") -> str:
        """Begin a session; returns its id, which is always new."""
        if len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_urlsafe(32)
        ends_at = self._clock.monotonic() + self._lifetime_seconds
        self._sessions[session_id] = Session(user, ends_at, password_hash)
        return session_id

    def find(self, session_id: str) -> Session | None:
        """The session with an id; None if it is unknown or has ended."""
        session = self._sessions.get(session_id)
        if session is not None and session.ends_at <= self._clock.monotonic():
            self.end(session_id)
            return None
        return session

    def end(self, session_id: str) -> None:
        """End a session."""
        self._sessions.pop(session_id, None)
