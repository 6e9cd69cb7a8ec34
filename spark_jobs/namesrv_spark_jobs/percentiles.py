"""The percentiles of every distribution: the one list that report, gates, comparison and charts follow."""

from collections.abc import Mapping
from typing import Final

# as people write them, and the share of the values that are at most so long
PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
# a field of summary.json, or a column of metrics.csv, has no dot in its name
PERCENTILE_FIELDS: Final[Mapping[str, str]] = {name.replace(".", ""): name for name in PERCENTILES}
