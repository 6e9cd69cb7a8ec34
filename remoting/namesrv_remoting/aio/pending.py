"""The calls of a connection that wait for their answers, by opaque."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from namesrv_remoting.command import RemotingCommand

_MIN_OPAQUE: Final = -(1 << 31)
_MAX_OPAQUE: Final = (1 << 31) - 1

Answer = asyncio.Future[RemotingCommand]


class PendingCalls:
    """The calls on one connection, by opaque.

    An entry lives exactly as long as the `with` block of its caller, so that nothing can leak: not after an answer, a
    timeout, a cancellation or the loss of the connection.
    """

    def __init__(self, first_opaque: int = 0) -> None:
        # opaque -> what its caller awaits
        self._answers: dict[int, Answer] = {}
        self._next_opaque = first_opaque

    def __len__(self) -> int:
        return len(self._answers)

    def draw_opaque(self) -> int:
        """The next number that no pending call has; Java's int, which goes on at its negative end."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = _MIN_OPAQUE if opaque == _MAX_OPAQUE else opaque + 1
            if opaque not in self._answers:
                return opaque

    @contextmanager
    def opened(self) -> Iterator[tuple[int, Answer]]:
        """A call: the opaque to send it with, and the answer to await."""
        opaque = self.draw_opaque()
        answer = self._answers[opaque] = asyncio.get_running_loop().create_future()
        try:
            yield opaque, answer
        finally:
            del self._answers[opaque]
            if answer.done() and not answer.cancelled():
                # fetched, so that asyncio does not report it: its caller left in the moment it was set
                answer.exception()

    def answer(self, command: RemotingCommand) -> bool:
        """Hand an answer to whoever waits for it; False when nobody does (any more)."""
        answer = None if command.opaque is None else self._answers.get(command.opaque)
        if answer is None or answer.done():
            return False
        answer.set_result(command)
        return True

    def fail_all(self, error: Callable[[], Exception]) -> None:
        """Fail every call that waits, each with an exception of its own."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error())
