"""Ways to break a frame.

Most of them keep or repair the lengths, so that what is broken reaches the serializers and the handlers and does not
end at the frame.
"""

import struct
from collections.abc import Callable

from tests.fuzz.values import EDGES, Dice

LENGTHS = (0, 1, 3, 4, 5, 7, 8, 16 * 1024 * 1024 - 4, 16 * 1024 * 1024 - 3, 2**31 - 1, 2**31, 2**32 - 1)


def mutate(frame: bytes, other: bytes, dice: Dice) -> bytes:
    """The frame, broken in one of these ways, rarely in two; `other` is what it is spliced with."""
    if len(frame) < 8 or dice.one_in(60):
        return dice.bytes(1 + dice.upto(64))
    broken = dice.pick(_WAYS)(frame, other, dice)
    return mutate(broken, other, dice) if dice.one_in(12) else broken


def _header_size(frame: bytes) -> int:
    return min(int.from_bytes(frame[5:8]), len(frame) - 8)


def _joined(frame: bytes, header: bytes, body: bytes) -> bytes:
    """A frame of the same type, its lengths right."""
    return struct.pack(">II", 4 + len(header) + len(body), frame[4] << 24 | len(header)) + header + body


def _in_header(frame: bytes, other: bytes, dice: Dice) -> bytes:
    size = _header_size(frame)
    return _joined(frame, _edited(frame[8 : 8 + size], other, dice), frame[8 + size :])


def _in_body(frame: bytes, other: bytes, dice: Dice) -> bytes:
    size = _header_size(frame)
    if len(frame) == 8 + size:
        return _in_header(frame, other, dice)
    return _joined(frame, frame[8 : 8 + size], _edited(frame[8 + size :], other, dice))


def _edited(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Bytes with bits flipped, or with something overwritten, taken out, put in or doubled."""
    edited = bytearray(data or b"\0")
    way = dice.upto(6)
    at = dice.upto(len(edited) - 1)
    if way <= 1:
        for _ in range(1 + dice.upto(3)):
            edited[dice.upto(len(edited) - 1)] ^= 1 << dice.upto(7)
    elif way == 2:
        edge = dice.pick(EDGES)
        edited[at : at + len(edge)] = edge
    elif way == 3:
        del edited[at : at + 1 + dice.upto(8)]
    elif way == 4:
        edited[at:at] = dice.bytes(1 + dice.upto(8))
    elif way == 5:
        edited[at:at] = edited[at : at + 1 + dice.upto(40)] * (1 + dice.upto(3))
    else:
        start = dice.upto(len(other))
        edited[at : at + dice.upto(20)] = other[start : start + dice.upto(40)]
    return bytes(edited)


def _shorter_body(frame: bytes, other: bytes, dice: Dice) -> bytes:
    size = _header_size(frame)
    body = frame[8 + size :]
    return _joined(frame, frame[8 : 8 + size], body[: dice.upto(len(body))])


def _other_body(frame: bytes, other: bytes, dice: Dice) -> bytes:
    size = _header_size(frame)
    return _joined(frame, frame[8 : 8 + size], other[8 + _header_size(other) :] if len(other) >= 8 else other)


def _other_type(frame: bytes, other: bytes, dice: Dice) -> bytes:
    return frame[:4] + bytes((dice.pick((0, 1, 77, 2, 76, 255)),)) + frame[5:]


def _flipped(frame: bytes, other: bytes, dice: Dice) -> bytes:
    """Anywhere, lengths included."""
    edited = bytearray(frame)
    edited[dice.upto(len(edited) - 1)] ^= 1 << dice.upto(7)
    return bytes(edited)


def _cut_off(frame: bytes, other: bytes, dice: Dice) -> bytes:
    """Without its end: what comes next is taken for it."""
    return frame[: 1 + dice.upto(len(frame) - 1)]


def _lying_length(frame: bytes, other: bytes, dice: Dice) -> bytes:
    length = dice.pick(LENGTHS) if dice.one_in(2) else max(0, len(frame) - 4 + dice.upto(16) - 8)
    return struct.pack(">I", length) + frame[4:]


def _lying_header_length(frame: bytes, other: bytes, dice: Dice) -> bytes:
    size = dice.upto(2**24 - 1) if dice.one_in(3) else max(0, _header_size(frame) + dice.upto(16) - 8)
    return frame[:5] + struct.pack(">I", size)[1:] + frame[8:]


def _doubled(frame: bytes, other: bytes, dice: Dice) -> bytes:
    return frame * 2


def _spliced(frame: bytes, other: bytes, dice: Dice) -> bytes:
    """The head of one and the tail of the other, with the head's lengths."""
    return frame[: dice.upto(len(frame))] + other[dice.upto(len(other)) :]


_WAYS: tuple[Callable[[bytes, bytes, Dice], bytes], ...] = (
    *(_in_header,) * 7,
    *(_in_body,) * 7,
    *(_shorter_body, _other_body, _doubled) * 2,
    _other_type,
    _flipped,
    _cut_off,
    _lying_length,
    _lying_header_length,
    _spliced,
)
