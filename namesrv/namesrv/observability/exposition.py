"""Prometheus exposition that never delays a pull.

A family at a time, with the loop running in between. The numbers of one scrape are therefore not all of one moment.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from namesrv.context import Namesrv
from namesrv.observability.families import families
from namesrv_remoting.aio.server import RemotingServer

# what every version of Prometheus reads
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class _One:
    """A collector of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """That one."""
        return (self._family,)


async def exposition(namesrv: Namesrv, server: RemotingServer) -> bytes:
    """All metrics in Prometheus' text format."""
    parts = []
    async for family in families(namesrv, server):
        parts.append(generate_latest(_One(family)))
        await asyncio.sleep(0)
    return b"".join(parts)
