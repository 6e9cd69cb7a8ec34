"""Draws, and ways to break a frame.

Most of them keep or repair the lengths, so that broken bytes reach the serializers and handlers.
"""

import struct
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

EDGES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0")
LENGTHS = (0, 1, 3, 4, 5, 7, 8, 16 * 1024 * 1024 - 4, 16 * 1024 * 1024 - 3, 2**31 - 1, 2**31, 2**32 - 1)


class Dice:
    """Draws for one frame, all from one number."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.below = self._random.random
        self.bytes = self._random.randbytes

    def one_in(self, n: int) -> bool:
        return self.below() * n < 1

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.below() * len(choices))]

    def upto(self, most: int) -> int:
        """A number from 0 to `most`, both included."""
        return int(self.below() * (most + 1))


def mutate(frame: bytes, other: bytes, dice: Dice) -> bytes:
    """The frame broken in one way, rarely in two; `other` is spliced into it."""
    if len(frame) < 8 or dice.one_in(60):
        return dice.bytes(1 + dice.upto(64))
    broken = _in_parts(frame, other, dice) if dice.one_in(4) else _repaired(frame, other, dice)
    return mutate(broken, other, dice) if dice.one_in(12) else broken


def edited(data: bytes, other: bytes, dice: Dice) -> bytes:
    """Bytes with flipped bits, or with an overwritten, removed, inserted or doubled part."""
    found = bytearray(data or b"\0")
    way, at = dice.upto(6), dice.upto(len(found) - 1)
    if way <= 1:
        for _ in range(1 + dice.upto(3)):
            found[dice.upto(len(found) - 1)] ^= 1 << dice.upto(7)
    elif way == 2:
        edge = dice.pick(EDGES)
        found[at : at + len(edge)] = edge
    elif way == 3:
        del found[at : at + 1 + dice.upto(8)]
    elif way == 4:
        found[at:at] = dice.bytes(1 + dice.upto(8))
    elif way == 5:
        found[at:at] = found[at : at + 1 + dice.upto(40)] * (1 + dice.upto(3))
    else:
        start = dice.upto(len(other))
        found[at : at + dice.upto(20)] = other[start : start + dice.upto(40)]
    return bytes(found)


def _repaired(frame: bytes, other: bytes, dice: Dice) -> bytes:
    """A frame with another header or body and correct lengths."""
    (header, body), way = _parts(frame), dice.upto(9)
    if way == 0:
        body = body[: dice.upto(len(body))]
    elif way == 1:
        body = _parts(other)[1] if len(other) >= 8 else other
    elif way <= 5 and body:
        body = edited(body, other, dice)
    else:
        header = edited(header, other, dice)
    return struct.pack(">II", 4 + len(header) + len(body), frame[4] << 24 | len(header)) + header + body


def _parts(frame: bytes) -> tuple[bytes, bytes]:
    size = min(int.from_bytes(frame[5:8]), len(frame) - 8)
    return frame[8 : 8 + size], frame[8 + size :]


def _in_parts(frame: bytes, other: bytes, dice: Dice) -> bytes:
    """Bytes that are not one whole frame, or do not look like one."""
    way = dice.upto(7)
    if way <= 1:
        return frame * 2
    if way <= 3:
        # another serialize type
        return frame[:4] + bytes((dice.pick((0, 1, 77, 2, 76, 255)),)) + frame[5:]
    if way == 4:
        # truncated: the next bytes become part of it
        return frame[: 1 + dice.upto(len(frame) - 1)]
    if way == 5:
        length = dice.pick(LENGTHS) if dice.one_in(2) else max(0, len(frame) - 12 + dice.upto(16))
        return struct.pack(">I", length) + frame[4:]
    if way == 6:
        size = dice.upto(2**24 - 1) if dice.one_in(3) else max(0, len(_parts(frame)[0]) + dice.upto(16) - 8)
        return frame[:5] + struct.pack(">I", size)[1:] + frame[8:]
    # the head of one frame and the tail of the other, with the head's lengths
    return frame[: dice.upto(len(frame))] + other[dice.upto(len(other)) :]
