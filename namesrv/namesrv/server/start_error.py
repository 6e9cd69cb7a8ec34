"""The error of a daemon that cannot start."""

from collections.abc import Iterator
from contextlib import contextmanager

from namesrv_remoting.aio.tls import TlsError


class StartError(Exception):
    """The daemon cannot start; the message is for the operator."""


@contextmanager
def needed(what: str = "", hint: str = "") -> Iterator[None]:
    """Turn an error in a step that every start needs into a StartError.

    `what` names the step; it is empty if the text of the error does so.
    """
    prefix = f"{what}: " if what else ""
    try:
        yield
    except OSError as error:
        raise StartError(f"{prefix}{error.strerror} {hint}".rstrip()) from error
    except TlsError as error:
        raise StartError(f"{prefix}{error}") from error
