"""A cache of the servers that speak the native protocol, by address, for the whole process."""

from typing import Final

# A server with RocketMQ's protocol is tested again after this time, because namesrv may have replaced it.
_RELEARN_SECONDS: Final = 60.0


class ServerProtocols:
    """The protocols of the servers that this process has connected to, for client, agent and namesrvctl.

    An unknown server gets a native SERVER_INFO. A response means the native protocol. Code 3, or a closed connection
    and then a JSON response whose language is not ours, mean RocketMQ's. The result is dropped when a connection closes
    before its first response; the result RocketMQ also ends after a minute.
    """

    def __init__(self) -> None:
        # address -> None for the native protocol, or the monotonic time until which RocketMQ's protocol is assumed
        self._rocketmq_until: dict[str, float | None] = {}

    def is_native(self, address: str, now: float) -> bool | None:
        """True if the server speaks the native protocol, False if not, None if unknown."""
        until = self._rocketmq_until.get(address, now)
        return True if until is None else False if now < until else None

    def learn(self, address: str, now: float, *, is_native: bool) -> None:
        """Note the protocol of a server."""
        self._rocketmq_until[address] = None if is_native else now + _RELEARN_SECONDS

    def forget(self, address: str) -> None:
        """Drop the result after a connection closed without a response: another server may have the address now."""
        self._rocketmq_until.pop(address, None)


# shared by all clients of this process, so that a thousand clients find out once
PROCESS_PROTOCOLS: Final = ServerProtocols()
