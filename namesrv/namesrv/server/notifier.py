"""Notifies the members of a broker group that its smallest id changed (905).

A native member is told over the connection that it registered on; a Java broker listens, and is dialled. Nobody waits
for it, and a member that cannot be reached finds out at its next question.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from namesrv.context import Spawn
from namesrv.routeinfo.records import MinBrokerIdChanged
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.aio.client import RemotingClient
from namesrv_remoting.aio.connection import ServerConnection
from namesrv_remoting.codes import FLAG_ONEWAY, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemotingError
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader
from namesrv_remoting.serializers import encode_command
from namesrv_runtime.clock import Clock
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# Java gives it 300 ms for the send alone, over connections that it keeps
TIMEOUT_SECONDS: Final = 3.0


@dataclass(slots=True)
class MinBrokerIdNotifier:
    """Tells members of groups, each in a task of its own."""

    clock: Clock
    tables: RouteTables
    connections: Mapping[int, ServerConnection]
    spawn: Spawn

    def __call__(self, change: MinBrokerIdChanged) -> None:
        """Tell all recipients."""
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_broker_id,
            # Java leaves the name out, and its brokers do not miss it
            broker_name=change.broker_name,
            min_broker_addr=change.min_broker_addr,
            ha_broker_addr=change.ha_broker_addr,
            offline_broker_addr=change.offline_broker_addr,
        )
        native = {
            key.broker_addr: live.connection_id
            for key, live in self.tables.broker_live_table.items()
            if live.is_native and live.broker_name == change.broker_name
        }
        for addr in change.recipients:
            connection = self.connections.get(native.get(addr, 0))
            if connection is None:
                self.spawn(self._dial(addr, header))
                continue
            notice = RemotingCommand(
                code=RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
                flag=FLAG_ONEWAY,
                ext_fields=header.to_ext(),
                serialize_type=SerializeType.MSGPACK,
            )
            connection.write(encode_command(notice))

    async def _dial(self, addr: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                RemotingClient(addr, clock=self.clock, connect_timeout_seconds=TIMEOUT_SECONDS) as client,
            ):
                await client.oneway(
                    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
                    ext_fields=header.to_ext(),
                    timeout_seconds=TIMEOUT_SECONDS,
                )
        except (RemotingError, OSError, ValueError, TimeoutError) as error:
            event(logger, logging.INFO, "min_broker_id_not_notified", broker_addr=addr, error=error)
