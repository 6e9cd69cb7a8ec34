"""How often a peer may try to sign in: by address and by name, so that neither one guesser nor many get far.

The package limits (5.8) does not fit: its memory store counts on the wall clock, keeps any number of keys, wakes a
thread after each attempt, and cannot take one attempt of a moving window back.
"""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

# an IPv6 network that one customer has
_IPV6_PREFIX: Final = 64
# beyond them those are forgotten that may try again soonest
_MAX_KEYS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Rate:
    """So many attempts at once, and one more each time a pause is over."""

    burst: int
    pause_seconds: float


PER_ADDRESS: Final = Rate(5, 30.0)
# Everybody can fail in anybody's name, so it only slows down: some thousand guesses a day, of very many.
PER_NAME: Final = Rate(30, 10.0)


class LoginLimit:
    """Attempts that failed, without a clock: every verb is handed `now`."""

    def __init__(self) -> None:
        # (kind, address or name) -> when all its attempts are forgotten; each attempt moves that by a pause
        self._forgotten_at: dict[tuple[str, str], float] = {}

    def __repr__(self) -> str:
        return f"<LoginLimit [{len(self._forgotten_at)} remembered]>"

    def wait_seconds(self, address: str, name: str, now: float) -> float:
        """How long until this may be tried; 0 or less is now."""
        return max(
            self._forgotten_at.get(key, now) - now - rate.pause_seconds * (rate.burst - 1)
            for key, rate in _keys(address, name)
        )

    def attempted(self, address: str, name: str, now: float) -> None:
        """Count an attempt, before it is known what comes of it: several may be under way."""
        if len(self._forgotten_at) >= _MAX_KEYS:
            self._shrink(now)
        for key, rate in _keys(address, name):
            self._forgotten_at[key] = max(self._forgotten_at.get(key, now), now) + rate.pause_seconds

    def succeeded(self, address: str, name: str) -> None:
        """Take one back."""
        for key, rate in _keys(address, name):
            if key in self._forgotten_at:
                self._forgotten_at[key] -= rate.pause_seconds

    def _shrink(self, now: float) -> None:
        latest = sorted(self._forgotten_at.items(), key=lambda item: item[1], reverse=True)[: _MAX_KEYS // 2]
        self._forgotten_at = {key: until for key, until in latest if until > now}


def _keys(address: str, name: str) -> tuple[tuple[tuple[str, str], Rate], ...]:
    return (("address", network_of(address)), PER_ADDRESS), (("name", name), PER_NAME)


def network_of(address: str) -> str:
    """Whose attempts those of an address are."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    mapped = found.ipv4_mapped
    return str(ip_network((int(found), _IPV6_PREFIX), strict=False)) if mapped is None else str(mapped)
