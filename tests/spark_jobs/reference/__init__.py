"""The analysis of docs/staleness.md in plain Python: the oracle for the report's numbers."""

from tests.spark_jobs.reference.analysis import Analysis

__all__ = ["Analysis"]
