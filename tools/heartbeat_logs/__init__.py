"""Heartbeat logs of a made-up fleet, of any size, from a seed, with the truth about them."""

from tools.heartbeat_logs.cli import generate
from tools.heartbeat_logs.settings import Settings

__all__ = ["Settings", "generate"]
