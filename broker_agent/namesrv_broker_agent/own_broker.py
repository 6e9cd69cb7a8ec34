"""The broker of an agent, as its registrations and heartbeats describe it."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.topics import BrokerTopics, TopicChange, TopicSnapshot
from namesrv_remoting.bodies.advertised import AdvertisedAddresses
from namesrv_remoting.bodies.dialects import NATIVE
from namesrv_remoting.bodies.extensions import MAX_STATE_BYTES, heartbeat_state
from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import PERM_WRITE
from namesrv_runtime.server_events import CALLBACK_ERRORS

logger: Final = logging.getLogger("namesrv_agent.heartbeat")

# The state that a broker reports of itself: a small flat map with names of its own.
BrokerState = Mapping[str, str | int | float | bool | None]


class Role(NamedTuple):
    """The part of a registration that describes the broker itself, and not its topics."""

    broker_id: int
    # False while the broker drains
    is_writable: bool


class OwnBroker:
    """The agent's broker: names, role, topics, state, and the registration sequence. All links share it."""

    def __init__(self, settings: AgentSettings, topics: BrokerTopics, state: Callable[[], BrokerState] | None) -> None:
        self.settings = settings
        self.topics = topics
        self.broker_id = settings.broker_id
        # False while draining: topics are then registered without write permission, and `topics` is unchanged
        self.is_writable = True
        # the id of this process, with which servers order the registrations of the broker
        self.agent_id = secrets.token_hex(8)
        # sequence number of the last registration that was sent to any server
        self.registration_seq = 0
        self._state = state
        self._advertised = AdvertisedAddresses(settings.advertised, settings.advertised_ha)

    def role(self) -> Role:
        """The broker's current role, for the next registration."""
        return Role(self.broker_id, self.is_writable)

    def next_registration_seq(self) -> int:
        """Count up the registration sequence, and return the number for the next registration."""
        self.registration_seq += 1
        return self.registration_seq

    def native_body(self, snapshot: TopicSnapshot, change: TopicChange | None) -> RegisterBrokerBody:
        """The content of a native registration: all topics of the snapshot, or only the changed ones."""
        topics, version = snapshot
        changed, deleted = (topics, ()) if change is None else (change.changed, change.deleted)
        return RegisterBrokerBody(self.as_registered(changed), version, {}, None, deleted, self._advertised)

    def as_registered(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        """Topics as a registration sends them: without write permission while draining."""
        if self.is_writable:
            return topics
        return [msgspec.structs.replace(topic, perm=topic.perm & ~PERM_WRITE) for topic in topics]

    def state_body(self) -> bytes:
        """The broker's reported state as the body of a heartbeat; empty if the application reports no state.

        A state that cannot be encoded is left out: a server would refuse the heartbeat, and then evict the broker.
        """
        if self._state is None:
            return b""
        try:
            body = NATIVE.encode({"state": dict(self._state())})
            heartbeat_state(body)
        except CALLBACK_ERRORS:
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
