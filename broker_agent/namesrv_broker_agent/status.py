"""What a broker agent says of itself: the broker, and each server. `dataclasses.asdict` makes it JSON."""

from dataclasses import dataclass

from namesrv_broker_agent.dialects import MasterInfo
from namesrv_broker_agent.link import ServerState


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """A broker agent at one moment."""

    cluster_name: str
    broker_name: str
    # 0 is the master
    broker_id: int
    broker_addr: str
    # entered, and not stopped yet
    is_started: bool
    # registered with all servers
    is_ready: bool
    # how many, and how often they changed
    topics: int
    data_version: int
    # of a slave: where its master is
    master: MasterInfo | None = None
    # why the list of NameServers could not be read the last time
    name_servers_error: str | None = None
    servers: tuple[ServerState, ...] = ()
