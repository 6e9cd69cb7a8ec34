"""The size of a fuzzing run, and its shares.

NAMESRV_FUZZ_EXAMPLES is the number of frames sent to a whole server; `make fuzz` raises it. Hypothesis draws batches of
numbers, each of which makes one frame; a failing number shrinks towards plain route requests.
"""

import math
import os
import struct
from collections.abc import Callable
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FRAMES: Final = int(os.environ.get("NAMESRV_FUZZ_EXAMPLES", "100000"))
# numbers per batch
BATCH: Final = 500
# Shrinking takes minutes, too long for an ordinary run; `make fuzz` finds the failing batch in hypothesis's database
# and has the time.
PHASES: Final = tuple(Phase) if "NAMESRV_FUZZ_EXAMPLES" in os.environ else (Phase.reuse, Phase.generate)
_NUMBERS: Final = st.binary(min_size=4 * BATCH, max_size=4 * BATCH).map(
    lambda drawn: struct.unpack(f">{BATCH}I", drawn)
)


def fuzzed(wanted: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Call a test with this many numbers, in batches."""
    budget = settings(
        max_examples=math.ceil(wanted / BATCH),
        deadline=None,
        phases=PHASES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    return lambda test: budget(given(numbers=_NUMBERS)(test))
