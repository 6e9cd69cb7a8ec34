"""The broker as every NameServer gets to know it: who it is, what it has."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.topics import TopicTable
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import MAX_STATE_BYTES, heartbeat_state
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.codes import PERM_WRITE

logger: Final = logging.getLogger(__name__)

# What a broker says of itself: small, flat, its own names.
BrokerState = Mapping[str, str | int | float | bool | None]


class BrokerIdentity:
    """The broker as it is now: who it is, what it has, and how often it has said so. Shared by all links."""

    def __init__(self, settings: AgentSettings, table: TopicTable, state: Callable[[], BrokerState] | None) -> None:
        self.settings = settings
        self.table = table
        self.broker_id = settings.broker_id
        # False while draining: all topics are registered without write permission, the table itself stays
        self.is_writable = True
        # this process, for servers that tell an old registration from a new one
        self.agent_id = secrets.token_hex(8)
        # of the last registration that was sent, to whichever server
        self.registration_seq = 0
        self._state = state

    def next_registration_seq(self) -> int:
        """The number of the registration that is being sent."""
        self.registration_seq += 1
        return self.registration_seq

    def topics(self) -> tuple[Sequence[TopicConfig], DataVersion]:
        """All topics as they are to be registered, and the version that stands for just these."""
        topics, version = self.table.snapshot()
        return self.as_registered(topics), version

    def as_registered(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        """Topics as they are to be registered: without write permission while draining."""
        if self.is_writable:
            return topics
        return [msgspec.structs.replace(topic, perm=topic.perm & ~PERM_WRITE) for topic in topics]

    def state_body(self) -> bytes:
        """What the broker says of itself now, as a heartbeat's body; empty if nobody was asked to say anything.

        A state that cannot be sent is left out: the server would refuse the heartbeat with it, and evict the broker.
        """
        if self._state is None:
            return b""
        try:
            body = NATIVE.encode({"state": dict(self._state())})
            heartbeat_state(body)
        except Exception:
            # the broker's own code; whatever is wrong with it, the broker lives
            logger.exception("heartbeat without the broker's state, a flat map of at most %d bytes", MAX_STATE_BYTES)
            return b""
        return body

    def address_fields(self) -> dict[str, str]:
        """The ext fields that name this broker in every request."""
        return {
            "clusterName": self.settings.cluster_name,
            "brokerName": self.settings.broker_name,
            "brokerAddr": self.settings.broker_addr,
            "brokerId": str(self.broker_id),
        }

    def registration_fields(self) -> dict[str, str]:
        """The ext fields of a registration, in either protocol."""
        settings = self.settings
        fields = {**self.address_fields(), "enableActingMaster": "true" if settings.enable_acting_master else "false"}
        if settings.ha_server_addr is not None:
            fields["haServerAddr"] = settings.ha_server_addr
        if settings.expiry_seconds is not None:
            fields["heartbeatTimeoutMillis"] = str(max(1, round(settings.expiry_seconds * 1000)))
        if settings.zone_name is not None:
            fields["__ZONE_NAME"] = settings.zone_name
        return fields
