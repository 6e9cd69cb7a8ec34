"""Draws for one fuzzed frame: names that collide, and what no peer should send."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

HOSTILE_TEXTS = (
    *("", " ", "\0", "null", "true", "NaN", "-1", "0", "1e400", "99999999999999999999", "9" * 5000, "\uff10", "{}"),
    *('{"0":"', '"', "'", "\\", "\\ud800", "\u2028\x7f\x1b[31m", "../../etc/passwd", "%s%n{0}", "a" * 256),
    *("b" * 33_000, "\U0001f98a" * 90, "a\nb=c"),
)
HOSTILE_NUMBERS: tuple[Any, ...] = (
    *(-1, 0, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30),
    *(1.5, True, None, "1", "x", [], {}),
)


class Dice:
    """Draws for one frame, all of them from one number."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.below = self._random.random
        self.bytes = self._random.randbytes

    def one_in(self, n: int) -> bool:
        """Once in n times."""
        return self.below() * n < 1

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[int(self.below() * len(choices))]

    def upto(self, most: int) -> int:
        """From 0 to this, both included."""
        return int(self.below() * (most + 1))

    def draw(self, what: Any) -> Any:
        """A value like this: what can be called is called; members whose names begin with ? are rare."""
        if callable(what):
            return what(self)
        if isinstance(what, dict):
            return {
                name.removeprefix("?"): self.draw(value)
                for name, value in what.items()
                if name[:1] != "?" or self.one_in(4)
            }
        return what


Draw = Callable[[Dice], Any]


def text(*names: str) -> Draw:
    """One of these names, the first ones more often; rarely something hostile."""
    return lambda dice: (
        dice.pick(HOSTILE_TEXTS) if dice.one_in(60) else names[int(dice.below() * dice.below() * len(names))]
    )


def number(*usual: int) -> Draw:
    """One of these numbers; rarely something hostile, not even always a number."""
    return lambda dice: dice.pick(HOSTILE_NUMBERS) if dice.one_in(60) else dice.pick(usual)


def either(*choices: Any) -> Draw:
    """One of these."""
    return lambda dice: dice.draw(dice.pick(choices))


def some(what: Any) -> Draw:
    """None to five of these."""
    return lambda dice: [dice.draw(what) for _ in range(dice.upto(5))]
