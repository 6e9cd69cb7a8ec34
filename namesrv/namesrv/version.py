"""Which version of `namesrv` is this?"""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The installed distribution's version."""
    try:
        return metadata.version("namesrv")
    except metadata.PackageNotFoundError:
        return "(not installed)"
