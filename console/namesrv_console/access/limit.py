"""The limit of sign-in attempts, by address and by name: neither one attacker nor many can try many passwords.

The package limits (5.8) does not fit: its memory store counts on the wall clock, keeps any number of keys, wakes a
thread after each attempt, and cannot take one attempt of a moving window back.
"""

from dataclasses import dataclass
from typing import Final

from namesrv_remoting.addresses import network_of

# Beyond this number, the keys whose attempts expire first are removed.
_MAX_KEYS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit: `burst` attempts at once, and one more after each pause."""

    burst: int
    pause_seconds: float


PER_ADDRESS: Final = Rate(5, 30.0)
# Any client can fail under any user's name, so this limit must not lock a user out: it allows 8,640 guesses a day, too
# few among very many passwords.
PER_NAME: Final = Rate(30, 10.0)


class LoginLimit:
    """Failed attempts. The class has no clock: its methods get the time on a monotonic clock."""

    def __init__(self) -> None:
        # (kind, address or name) -> time at which all its attempts are forgotten; each attempt moves that time by a
        # pause.
        self._forgotten_at: dict[tuple[str, str], float] = {}

    def __repr__(self) -> str:
        return f"<LoginLimit [{len(self._forgotten_at)} remembered]>"

    def wait_seconds(self, address: str, name: str, now: float) -> float:
        """Seconds until the next attempt is allowed; at 0 or less it is allowed now."""
        return max(
            self._forgotten_at.get(key, now) - now - rate.pause_seconds * (rate.burst - 1)
            for key, rate in _keys(address, name)
        )

    def attempted(self, address: str, name: str, now: float) -> None:
        """Count an attempt before its password is verified, since several attempts may be under way."""
        if len(self._forgotten_at) >= _MAX_KEYS:
            self._shrink(now)
        for key, rate in _keys(address, name):
            self._forgotten_at[key] = max(self._forgotten_at.get(key, now), now) + rate.pause_seconds

    def succeeded(self, address: str, name: str) -> None:
        """Take one attempt back."""
        for key, rate in _keys(address, name):
            if key in self._forgotten_at:
                self._forgotten_at[key] -= rate.pause_seconds

    def _shrink(self, now: float) -> None:
        latest = sorted(self._forgotten_at.items(), key=lambda item: item[1], reverse=True)[: _MAX_KEYS // 2]
        self._forgotten_at = {key: until for key, until in latest if until > now}


def _keys(address: str, name: str) -> tuple[tuple[tuple[str, str], Rate], ...]:
    return (("address", network_of(address)), PER_ADDRESS), (("name", name), PER_NAME)
