"""Generator of heartbeat logs of a simulated fleet of any size, from a seed, with the ground truth."""

from tools.heartbeat_logs.cli import generate
from tools.heartbeat_logs.settings import Settings

__all__ = ["Settings", "generate"]
