"""Heartbeat logs of a made-up fleet, of any size, from a seed, with the truth about them."""

from namesrv_spark_jobs.generate.cli import generate
from namesrv_spark_jobs.generate.settings import Settings

__all__ = ["Settings", "generate"]
