"""Values of fuzzed frames: names that collide, and what no peer should send."""

from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

# Few, so that frames meet: a broker registered by one is looked up, wiped and unregistered by others.
CLUSTERS = ("c0", "c1", "DefaultCluster")
BROKERS = ("b0", "b1", "b2", "broker-a")
ADDRS = ("127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.2:10911", "127.0.0.3:10911", "[::1]:10911")
TOPICS = ("t0", "t1", "t2", "t3", "%RETRY%g", "TBW102", "rmq_sys_SYNC_BROKER_MEMBER_b0", "тема", "a/b")
NAMESPACES = ("ORDER_TOPIC_CONFIG", "ns")
BROKER_IDS = (0, 0, 0, 1, 1, 2, -1, 2**63 - 1)
VERSIONS = (479, 479, 479, 401, 413, 412, 317, 121, 37, 36, 0)

HOSTILE_TEXTS = (
    "",
    " ",
    "\0",
    "null",
    "true",
    "NaN",
    "-1",
    "0",
    "1e400",
    "99999999999999999999",
    "9" * 5000,
    "\uff10",
    "{}",
    '{"0":"',
    '"',
    "'",
    "\\",
    "\\ud800",
    "\u2028\x7f\x1b[31m",
    "../../etc/passwd",
    "%s%n{0}",
    "a" * 256,
    "b" * 33_000,
    "\U0001f98a" * 90,
    "a\nb=c",
)
HOSTILE_NUMBERS: tuple[Any, ...] = (
    -1,
    0,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    1.5,
    True,
    None,
    "1",
    "x",
    [],
    {},
)
EDGES = (b"\0", b"\xff", b"\x7f", b"\x80", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0")


class Dice:
    """Draws for one frame, all of them from one number."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.below = self._random.random

    def one_in(self, n: int) -> bool:
        """Once in n times."""
        return self._random.random() * n < 1

    def pick(self, choices: "tuple[T, ...] | list[T]") -> T:
        """One of them."""
        return choices[int(self._random.random() * len(choices))]

    def upto(self, most: int) -> int:
        """From 0 to this, both included."""
        return int(self._random.random() * (most + 1))

    def bytes(self, size: int) -> bytes:
        """Any bytes."""
        return self._random.randbytes(size)

    def text(self, choices: tuple[str, ...]) -> str:
        """One of these names, the first ones more often; rarely something hostile."""
        if self.one_in(60):
            return self.pick(HOSTILE_TEXTS)
        return choices[int(self._random.random() ** 2 * len(choices))]

    def number(self, *usual: int) -> Any:
        """One of these numbers; rarely something hostile, not even always a number."""
        return self.pick(HOSTILE_NUMBERS) if self.one_in(60) else self.pick(usual)
