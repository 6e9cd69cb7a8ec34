"""The report's numbers once more in plain Python, to be read like docs/staleness.md and to be compared with."""

from tests.spark_jobs.reference.analysis import Analysis

__all__ = ["Analysis"]
