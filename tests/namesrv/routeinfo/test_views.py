"""Views of the route tables."""

import pytest

from namesrv.routeinfo.records import RouteOptions
from namesrv.routeinfo.topics import plan_register_topic
from namesrv.routeinfo.views import topic_route
from tests.support.route_builders import apply, key, queue_data, registration, remove, tables_of, topic

OPTIONS = RouteOptions(support_acting_master=True)


@pytest.mark.parametrize(("may_act", "perm", "shown_as"), [(True, 4, 0), (False, 4, 1), (True, 6, 1)])
def test_slave_is_shown_as_master_only_where_it_acts(perm: int, shown_as: int, *, may_act: bool) -> None:
    """A slave has id 0 in a route when its group allows that and the topic is read-only."""
    tables = tables_of(
        registration("b", 0, "x1", topic("t", perm=4), "u", enable_acting_master=may_act),
        registration("b", 1, "x2", topic("t", perm=4), "u", enable_acting_master=may_act),
    )
    remove(tables, key("x1"))
    apply(tables, plan_register_topic(tables, "t", [queue_data("b", perm=perm)]))

    route = topic_route(tables, "t", OPTIONS)

    assert route is not None
    assert [dict(group.broker_addrs) for group in route.broker_datas] == [{shown_as: "x2"}]
