"""Cache of which servers speak the native protocol, by address, for the whole process."""

from typing import Final

# A server that speaks only RocketMQ's protocol is asked again after this long: it may have been replaced by ours.
_RELEARN_SECONDS: Final = 60.0
# Apache's server closes the connection on a serialize type that it does not know; so does a native server that dies
# just then, which is why one closed connection proves nothing.
_CLOSED_TWICE: Final = 2


class ServerProtocols:
    """What this process has learnt about each server's protocol; one rule for the client, the agent and namesrvctl.

    An unknown server is asked SERVER_INFO natively. Its answer makes it native; code 3, or two connections in a row
    that close without an answer, make it RocketMQ's. What was learnt is forgotten when a connection closes before the
    first answer on it, and RocketMQ's after a minute as well.
    """

    def __init__(self) -> None:
        # address -> None: native; else until when (monotonic) it is taken for one that speaks RocketMQ's protocol only
        self._rocketmq_until: dict[str, float | None] = {}

    def is_native(self, address: str, now: float) -> bool | None:
        """Whether the server speaks the native protocol; None when it has to be asked."""
        until = self._rocketmq_until.get(address, now)
        return True if until is None else False if now < until else None

    def attempts(self, address: str) -> int:
        """How many connections may close on the question before the server is taken for RocketMQ's."""
        return 1 if self._rocketmq_until.get(address) is not None else _CLOSED_TWICE

    def learn(self, address: str, now: float, *, is_native: bool) -> None:
        """Remember what the server turned out to speak."""
        self._rocketmq_until[address] = None if is_native else now + _RELEARN_SECONDS

    def forget(self, address: str) -> None:
        """A connection closed before anything was answered on it: another server may be there now."""
        self._rocketmq_until.pop(address, None)


# shared by everything in this process, so that a thousand clients learn it once
PROCESS_PROTOCOLS: Final = ServerProtocols()
