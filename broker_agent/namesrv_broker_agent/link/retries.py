"""The pauses between attempts to register with a server, and the factor on the timeouts of each attempt."""

from collections.abc import Callable
from typing import Final

from namesrv_remoting.errors import ConnectionClosedError, RemotingError, RequestTimeoutError, SystemBusyError
from namesrv_runtime.backoff import Backoff

_FIRST_BACKOFF_SECONDS: Final = 0.1
# An attempt that times out, whose connection the server accepts and closes, or whose first request is answered with
# SYSTEM_BUSY, shows an overloaded server or network, not an absent server. Two thousand agents that retried every
# second with unchanged timeouts would keep such a server overloaded for ever.
_FIRST_SLOW_BACKOFF_SECONDS: Final = 1.0
_MAX_SLOW_BACKOFF_SECONDS: Final = 15.0
# Timeouts of attempts on an overloaded server double so often at most, to four times their length.
_MAX_TIMEOUT_DOUBLINGS: Final = 2


class Retries:
    """Counts failed attempts in a row, and derives the next pause and the next timeouts from them."""

    def __init__(self, max_backoff_seconds: float, heartbeat_seconds: float, random_unit: Callable[[], float]) -> None:
        self._backoff = Backoff(_FIRST_BACKOFF_SECONDS, max_backoff_seconds)
        # A proxy accepts connections while its server is dead, so that the server seems overloaded. The restarted
        # server lacks the broker until the pause ends, so a pause is no longer than a heartbeat interval.
        self._slow_backoff = Backoff(_FIRST_SLOW_BACKOFF_SECONDS, min(_MAX_SLOW_BACKOFF_SECONDS, heartbeat_seconds))
        self._random_unit = random_unit
        self._failures = 0
        # consecutive attempts that failed on an overloaded server
        self._slow_failures = 0

    @property
    def is_slow(self) -> bool:
        """True while the server seems overloaded: pauses and timeouts are longer."""
        return self._slow_failures > 0

    def failed(self, error: RemotingError, *, was_registered: bool) -> None:
        """Count an attempt that failed, or a connection that ended after a registration."""
        self._failures = 1 if was_registered else self._failures + 1
        # The cause of a ConnectError is a TimeoutError if the connect timed out.
        timed_out = isinstance(error, RequestTimeoutError) or isinstance(error.__cause__, TimeoutError)
        is_overload = timed_out or isinstance(error, ConnectionClosedError | SystemBusyError)
        self._slow_failures = self._slow_failures + 1 if is_overload and not was_registered else 0

    def pause_seconds(self) -> float:
        """A random pause before the next attempt."""
        if self.is_slow:
            return self._slow_backoff.pause_seconds(self._slow_failures, self._random_unit())
        return self._backoff.pause_seconds(self._failures, self._random_unit())

    def timeout_factor(self) -> float:
        """The factor on the timeouts of the next attempt; random, so that agents do not fail together again."""
        longest = 2.0 ** min(self._slow_failures, _MAX_TIMEOUT_DOUBLINGS)
        return 1.0 if longest == 1.0 else 1.0 + (longest - 1.0) * self._random_unit()
