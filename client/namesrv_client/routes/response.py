"""The response of a server to a request for routes, as the client's other parts take it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from namesrv_remoting.bodies.route import TopicRouteData


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResponse:
    """The response of one server to a request for the routes of some topics."""

    # the server's boot id; for Apache's server, which has no boot id, a name of the connection
    boot_id: str
    # Number of the connection over which the response arrived; no two connections of the process have the same number.
    # If the connection ended before the response was processed, a number that belongs to no connection: then it equals
    # that of no other response.
    connection_number: int
    # True if all brokers have had time to register, so that brokers missing in a route are gone
    is_complete: bool
    # True if the server has sent a complete response over this connection in this boot, perhaps this response
    has_been_complete: bool
    # True if a topic that this server and this client do not know does not exist
    knows_all_topics: bool = True
    # all requested topics
    topics: Sequence[str]
    # topic -> route, None if the topic does not exist; for a conditional request only the changed topics
    routes: Mapping[str, TopicRouteData | None]
    # the server's revision of the routes; None from Apache's server
    revision: int | None = None
    # True for a response to a request for the changes after a revision
    is_conditional: bool = False


# called with each response as it arrives
Receive = Callable[[RouteResponse], None]
