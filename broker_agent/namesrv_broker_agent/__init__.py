"""The broker agent: a library for broker processes that keeps the broker registered with every NameServer."""

from namesrv_broker_agent.agent import BrokerAgent
from namesrv_broker_agent.link.state import LinkCounts, ServerState
from namesrv_broker_agent.protocols import MasterInfo
from namesrv_broker_agent.settings import AgentSettings
from namesrv_broker_agent.status import AgentStatus
from namesrv_broker_agent.sync import SyncBrokerAgent
from namesrv_broker_agent.topics import TopicChange, TopicStateError
from namesrv_remoting.bodies.topic import TopicConfig
from namesrv_remoting.codes import Permission
from namesrv_remoting.headers import NotifyMinBrokerIdChangeRequestHeader

__all__ = [
    "AgentSettings",
    "AgentStatus",
    "BrokerAgent",
    "LinkCounts",
    "MasterInfo",
    "NotifyMinBrokerIdChangeRequestHeader",
    "Permission",
    "ServerState",
    "SyncBrokerAgent",
    "TopicChange",
    "TopicConfig",
    "TopicStateError",
]
