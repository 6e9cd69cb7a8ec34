"""The percentiles of every distribution: the one list for report, gates, comparison and charts.

Where space is short, report/page.py shows some of them; report/comparison.py judges some. The report's table in
docs/tutorials/dead-broker.md has a column for each.
"""

from collections.abc import Mapping
from typing import Final

# the name that people use, and the share of the values that are at most the percentile
PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
# names of fields in summary.json and of columns in metrics.csv, which have no dot
PERCENTILE_FIELDS: Final[Mapping[str, str]] = {name.replace(".", ""): name for name in PERCENTILES}
