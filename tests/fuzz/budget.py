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


def in_batches(wanted: int, batch: Callable[[tuple[int, ...]], int], *, numbers: int | None = None) -> None:
    """Call `batch` with enough numbers, one for each wanted frame unless said otherwise.

    It says how many frames it looked at, so that a test cannot silently do less.
    """
    looked_at = 0

    @settings(
        max_examples=math.ceil((numbers or wanted) / BATCH),
        deadline=None,
        phases=PHASES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(st.binary(min_size=4 * BATCH, max_size=4 * BATCH))
    def run(drawn: bytes) -> None:
        nonlocal looked_at
        looked_at += batch(struct.unpack(f">{BATCH}I", drawn))

    run()
    print(f"{looked_at} frames, at least {wanted} wanted")  # noqa: T201 - shown with -s, and when it fails
    assert looked_at >= wanted
