"""Which fields does the header of each request and response carry?"""

from namesrv_remoting.headers.base import ExtHeader

__all__ = ["ExtHeader"]
