"""Who is signed in: a table in memory. The browser's signed cookie holds an id alone, so that what ended has ended."""

import secrets
from dataclasses import dataclass
from typing import Final

from namesrv_console.access.users import Role, Source
from namesrv_runtime.clock import Clock

# more tabs than any console sees; the oldest is signed out
_MAX_SESSIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who signed in."""

    name: str
    source: Source
    # of a user with a password the file says it
    role: Role
    ends_at: float
    # the hash that the password fitted: another one ends the session
    password_hash: str = ""


class Sessions:
    """The sessions of this process; a restart ends them all."""

    def __init__(self, lifetime_seconds: float, clock: Clock) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._clock = clock
        # by id, oldest first
        self._sessions: dict[str, Session] = {}

    def __repr__(self) -> str:
        return f"<Sessions [{len(self._sessions)}]>"

    def begin(self, name: str, source: Source, role: Role, password_hash: str = "") -> str:
        """Sign somebody in; the id, which is always new."""
        if len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session_id = secrets.token_urlsafe(32)
        ends_at = self._clock.monotonic() + self._lifetime_seconds
        self._sessions[session_id] = Session(name, source, role, ends_at, password_hash)
        return session_id

    def find(self, session_id: str) -> Session | None:
        """The session of an id, unless it is over."""
        session = self._sessions.get(session_id)
        if session is not None and session.ends_at <= self._clock.monotonic():
            self.end(session_id)
            return None
        return session

    def end(self, session_id: str) -> None:
        """Sign out."""
        self._sessions.pop(session_id, None)
