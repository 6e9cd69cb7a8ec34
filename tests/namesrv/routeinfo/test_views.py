"""Views say what the tables hold; routes of usual topics are for the state machine."""

from namesrv.routeinfo import views
from namesrv.routeinfo.records import RouteOptions
from namesrv.routeinfo.tables import RouteTables
from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_remoting.codes import SYNC_BROKER_MEMBER_PREFIX
from tests.support.route_builders import queue_data, registration, tables_of

MASTER = registration("b1", 0, "m:1", enable_acting_master=True)
ACTING = RouteOptions(support_acting_master=True)


def route(tables: RouteTables, name: str = "t1", options: RouteOptions = ACTING) -> TopicRouteData:
    """A route that exists."""
    found = views.topic_route(tables, name, options)
    assert found is not None
    return found


def test_route_of_one_broker() -> None:
    """pickupTopicRouteData: one broker, 8 and 8 queues, perm 6, and nothing that is not there."""
    group = BrokerData("c1", "b1", {0: "m:1"}, None, enable_acting_master=True)
    tables = tables_of(MASTER)

    assert TopicRouteData([group], (queue_data("b1"),), {}, None, None) == route(tables)
    assert views.topic_route(tables, "nothing", ACTING) is None


def test_brokers_own_topic_shows_the_group_as_it_is() -> None:
    """By it the members of a group find each other: the slave that acts has to be seen as one."""
    own = f"{SYNC_BROKER_MEMBER_PREFIX}b1"
    tables = tables_of(
        registration("b1", 1, "s:1", own, "t1", enable_acting_master=True),
        registration("b1", 2, "s:2", own, "t1", enable_acting_master=True),
    )

    assert {1: "s:1", 2: "s:2"} == route(tables, own).broker_datas[0].broker_addrs
    assert {0: "s:1", 2: "s:2"} == route(tables).broker_datas[0].broker_addrs
    assert {1: "s:1", 2: "s:2"} == route(tables, "t1", RouteOptions()).broker_datas[0].broker_addrs


def test_system_topics() -> None:
    """Clusters, brokers, and the address of some broker (304)."""
    tables = tables_of(registration("b2", 0, "o:1"), registration("b1", 3, "s:1"))

    assert (["b1", "b2", "c1"], "s:1") == views.system_topics(tables)
    assert ([], None) == views.system_topics(RouteTables())
