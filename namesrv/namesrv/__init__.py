"""The daemon: a NameServer for message brokers."""

from functools import cache


@cache
def version() -> str:
    """Return the installed distribution's version."""
    from importlib import metadata  # noqa: PLC0415  # start-up counts

    try:
        return metadata.version("namesrv")
    except metadata.PackageNotFoundError:
        return "(not installed)"
