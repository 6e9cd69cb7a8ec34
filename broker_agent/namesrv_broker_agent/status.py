"""The status of a broker agent: the broker, and the link to each server; `dataclasses.asdict` makes it JSON."""

from dataclasses import dataclass

from namesrv_broker_agent.link.state import ServerState
from namesrv_broker_agent.protocols import MasterInfo


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """The state of a broker agent at one moment."""

    cluster_name: str
    broker_name: str
    # 0 is the master
    broker_id: int
    broker_addr: str
    # True between entering the agent's context and stopping
    is_started: bool
    # True while the broker is registered with all servers
    is_ready: bool
    # number of topics, and the counter of their DataVersion
    topics: int
    data_version: int
    # the master of a slave
    master: MasterInfo | None = None
    # the error of the last read of the list of NameServers
    name_servers_error: str | None = None
    servers: tuple[ServerState, ...] = ()
