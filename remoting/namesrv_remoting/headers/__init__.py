"""Header fields of each request and response."""

from namesrv_remoting.headers.base import ExtHeader

__all__ = ["ExtHeader"]
