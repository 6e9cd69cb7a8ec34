"""Budget of one fuzzing run, and its shares.

NAMESRV_FUZZ_EXAMPLES is the number of frames that are sent to a whole server; `make fuzz` raises it. Hypothesis draws
a batch of numbers, of which each makes one frame; what fails it shrinks, number by number, to plain route questions.
"""

import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FRAMES: Final = int(os.environ.get("NAMESRV_FUZZ_EXAMPLES", "100000"))
# the numbers of one batch
BATCH: Final = 500
# Shrinking takes minutes, more than a test of an ordinary run may; `make fuzz` finds the failing batch in hypothesis's
# database, and has the time.
PHASES: Final = tuple(Phase) if "NAMESRV_FUZZ_EXAMPLES" in os.environ else (Phase.reuse, Phase.generate)
# recorded frames to begin with, where there are any
GOLDEN: Final = Path(__file__).parents[1] / "golden"


class Counted:
    """How many were really looked at: a test asserts on it, so that it cannot silently do less."""

    def __init__(self) -> None:
        self.frames = 0

    def enough(self, wanted: int, what: str) -> bool:
        """Whether it was as many as wanted; says how many."""
        print(f"{self.frames} {what}, at least {wanted} wanted")  # noqa: T201 - shown with -s, and when it fails
        return self.frames >= wanted


def in_batches(wanted: int, batch: Callable[[tuple[int, ...]], None]) -> None:
    """Call `batch` with as many batches of numbers as make that many frames, one from each number."""

    @settings(
        max_examples=math.ceil(wanted / BATCH),
        deadline=None,
        phases=PHASES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(st.binary(min_size=4 * BATCH, max_size=4 * BATCH))
    def run(numbers: bytes) -> None:
        batch(struct.unpack(f">{BATCH}I", numbers))

    run()
