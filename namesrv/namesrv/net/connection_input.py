"""Input of one connection: its receiver, and the memory and deadline that follow the receiver's state."""

from typing import Final

from namesrv.net.deadlines import Deadlines
from namesrv.net.fairness.account import MemoryAccount
from namesrv.net.receiver import Receiver, State

_BODY: Final = State.BODY


class ConnectionInput:
    """Charges received bytes to the account of the peer, and decides whether there is memory for a large frame.

    An accepted body has reserved memory, and so has the received beginning of a frame that waits for memory; other
    input is charged as waiting bytes, and dropped bodies take none.
    """

    __slots__ = ("_deadlines", "_memory", "_receiver")

    def __init__(self, receiver: Receiver, memory: MemoryAccount, deadlines: Deadlines) -> None:
        self._receiver = receiver
        self._memory = memory
        self._deadlines = deadlines

    def __repr__(self) -> str:
        return f"<ConnectionInput [{self._receiver} | {self._memory}]>"

    def accept_if_memory(self) -> None:
        """Receive the large frame that awaits a decision, if there is memory for it; else the frame waits.

        A frame whose beginning was dropped waits only until its body is dropped.
        """
        header = self._receiver.header
        if header is None or not self._receiver.keeps_beginning:
            return
        if self._memory.reserve_frame(header.size, is_whole=True):
            self._receiver.accept()
            # The deadline of the frame starts now, however long the frame has waited for memory.
            self._deadlines.frame_ended()

    def drop_body(self) -> None:
        """Drop the body of the large frame that awaits a decision."""
        self._deadlines.frame_ended()
        self._memory.release_frame()
        self._receiver.drop_body()

    def charge_rest(self) -> bool:
        """Charge memory for the bytes that the receiver keeps after a read; False if the peer has to be refused."""
        receiver, memory = self._receiver, self._memory
        if receiver.keeps_beginning:
            if memory.reserve_frame(receiver.held_bytes, is_whole=False):
                return True
            # A large frame waits for memory, and there is none even for its beginning: the frame is declined after its
            # wait. Until then, the server does not read from this peer, so that a crowd of peers cannot send one such
            # frame after the other.
            receiver.drop_beginning()
        if receiver.state is not _BODY:
            memory.release_frame()
        memory.set_input(receiver.held_bytes)
        return not memory.lacks_room_for(receiver.held_bytes)

    def end(self) -> None:
        """Receive nothing more, and release the memory of received bytes."""
        self._receiver.end()
        self._deadlines.frame_ended()
        self._memory.set_input(0)
        self._memory.release_frame()
