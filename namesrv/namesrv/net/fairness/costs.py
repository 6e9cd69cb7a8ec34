"""Costs of received input: every read and every frame costs, with or without a response.

One-way requests, ignored frames, bytes after garbage and TLS records without data count like all other input. A cost
is a number of bytes and not a time, so that the same input is always split in the same places. Costs are in proportion
to processor time.

The receiver charges the reads and events that pass through it. The connection charges the reads that are one frame each
and that the fast path answers, the further cost of dispatching, and in advance a read after a wait. The TLS transport
charges records.
"""

from typing import Final, Protocol

# A frame takes about 3 microseconds if the fast path answers it, whatever its length of at most 512 bytes. A read, with
# the system call that sends the responses, takes at least as long.
READ_COST: Final = 128
FRAME_COST: Final = 128
# Further cost of decoding a frame for the dispatcher, which is added to the number of its bytes.
DISPATCH_COST: Final = 896
# Python's ssl module takes about 3 microseconds for a small record of data; the cost is added to the number of bytes.
TLS_RECORD_COST: Final = 512
# A record without data, for example a KeyUpdate of 27 bytes, takes about 50 microseconds: OpenSSL derives new keys, and
# Python raises an exception. The cost is several times as high, since honest peers send such a record once in millions:
# only the sender of a flood waits for further iterations.
TLS_RECORD_WITHOUT_DATA_COST: Final = 16 * 1024
# The longest read (the size of uvloop's buffer), and its cost if the bytes are only copied or dropped.
_LONGEST_READ_BYTES: Final = 256 * 1024
COPIED_READ_COST: Final = 8 * 1024


def copy_cost(size: int) -> int:
    """The cost of received bytes that are copied or dropped."""
    return size * COPIED_READ_COST // _LONGEST_READ_BYTES


class Share(Protocol):
    """The share of an iteration of the event loop that input may use."""

    # the cost that is left, valid while the share is active: after `spend`, until the iteration ends
    left: int

    def spend(self, cost: int) -> bool:
        """Subtract the cost of input; True if the share is not used up."""
        ...
