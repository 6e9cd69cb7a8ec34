"""The tables pass the tests that Apache's NameServer has for its own routes: RouteInfoManagerNewTest and its relatives.

Each is a row under its name: steps, and what a client is told of TestTopic after each. Theirs run with
supportActingMaster, most with one broker group (id 0 and id 1). What lists, cluster info and answers to registrations
say is in tests/namesrv/processors, in every spelling.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from namesrv.routeinfo.records import Registration
from tests.support.route_builders import RouteScene, queue_data, registration, topic
from tests.support.table_invariants import violations

# a broker of the route: its addresses, and its permission
Shown = tuple[dict[int, str], int]
Step = tuple[Callable[[RouteScene], Awaitable[Any]], list[Shown]]

MASTER_ADDR, SLAVE_ADDR, OTHER_ADDR = "127.0.0.1:10911", "127.0.0.1:30911", "127.0.0.1:10922"


def broker(broker_id: int, addr: str, *topics: Any, name: str = "Default_Broker", **fields: Any) -> Registration:
    """A member of a group; its master is on connection 1, its slave on connection 2."""
    whole = {"cluster_name": "Default_Cluster", "enable_acting_master": True, "connection_id": broker_id + 1, **fields}
    return registration(name, broker_id, addr, *(topics or ("TestTopic", "baseTopic")), **whole)


MASTER, SLAVE = broker(0, MASTER_ADDR), broker(1, SLAVE_ADDR)
OTHER = broker(0, OTHER_ADDR, name="Other_Broker", cluster_name="Other_Cluster", connection_id=5)
# of a version that knows no acting master
OLD_MASTER, OLD_SLAVE = (replace(one, enable_acting_master=False) for one in (MASTER, SLAVE))
SAY_NOTHING = [replace(one, enable_acting_master=None) for one in (MASTER, SLAVE)]
WITHOUT_THE_TOPIC = broker(0, MASTER_ADDR, "baseTopic", "another")
PROMOTED, DEMOTED = replace(OLD_SLAVE, broker_id=0), replace(OLD_MASTER, broker_id=1, connection_id=3)

BOTH: Shown = ({0: MASTER_ADDR, 1: SLAVE_ADDR}, 6)
ALONE: Shown = ({0: MASTER_ADDR}, 6)
ACTING: Shown = ({0: SLAVE_ADDR}, 4)
LONE_SLAVE: Shown = ({1: SLAVE_ADDR}, 6)
NEW_MASTER: Shown = ({0: SLAVE_ADDR}, 6)
SWAPPED: Shown = ({0: SLAVE_ADDR, 1: MASTER_ADDR}, 6)
ANOTHER: Shown = ({0: OTHER_ADDR}, 6)


def joins(*brokers: Registration, shows: list[Shown]) -> Step:
    """They register, one after the other."""
    return lambda scene: scene.register(*brokers), shows


def leaves(one: Registration, shows: list[Shown]) -> Step:
    """It says goodbye."""
    return lambda scene: scene.manager.unregister(one.key, one.broker_name, one.connection_id), shows


def ends(connection_id: int, shows: list[Shown]) -> Step:
    """A connection ends."""
    return lambda scene: scene.close(connection_id), shows


def deleted(cluster: str | None, shows: list[Shown]) -> Step:
    """The topic is deleted, perhaps only in a cluster."""
    return lambda scene: scene.manager.delete_topic("TestTopic", cluster), shows


def added(shows: list[Shown]) -> Step:
    """The topic is registered by itself (217)."""
    return lambda scene: scene.manager.register_topic("TestTopic", [queue_data("Default_Broker")]), shows


TESTS: dict[str, list[Step]] = {
    "deleteTopic": [
        joins(MASTER, shows=[ALONE]),
        deleted(None, []),
        joins(MASTER, OTHER, shows=[ALONE, ANOTHER]),
        deleted("Default_Cluster", [ANOTHER]),
    ],
    "unregisterBroker": [joins(MASTER, shows=[ALONE]), leaves(MASTER, [])],
    "registerSlaveBroker": [joins(MASTER, shows=[ALONE]), joins(SLAVE, shows=[BOTH])],
    "createNewTopic": [joins(WITHOUT_THE_TOPIC, SLAVE, shows=[]), joins(MASTER, shows=[BOTH])],
    "switchBrokerRole": [
        joins(OLD_MASTER, OLD_SLAVE, shows=[BOTH]),
        leaves(MASTER, [LONE_SLAVE]),
        joins(PROMOTED, shows=[NEW_MASTER]),
        joins(DEMOTED, shows=[SWAPPED]),
    ],
    "unRegisterSlaveBroker": [joins(MASTER, SLAVE, shows=[BOTH]), leaves(SLAVE, [ALONE])],
    "unRegisterMasterBroker": [joins(MASTER, SLAVE, shows=[BOTH]), leaves(MASTER, [ACTING])],
    "unRegisterMasterBrokerOldVersion": [joins(OLD_MASTER, OLD_SLAVE, shows=[BOTH]), leaves(MASTER, [LONE_SLAVE])],
    "the same of brokers that say nothing": [joins(*SAY_NOTHING, shows=[BOTH]), leaves(MASTER, [LONE_SLAVE])],
    "and of a master that is only to be read": [
        joins(broker(0, MASTER_ADDR, topic("TestTopic", perm=4), "baseTopic"), shows=[({0: MASTER_ADDR}, 4)])
    ],
    "submitMultiUnRegisterRequests": [
        joins(MASTER, OTHER, shows=[ALONE, ANOTHER]),
        leaves(MASTER, [ANOTHER]),
        leaves(OTHER, []),
    ],
    "pickupTopicRouteDataWithSlave": [
        joins(MASTER, SLAVE, shows=[BOTH]),
        leaves(MASTER, [ACTING]),
        joins(MASTER, shows=[BOTH]),
    ],
    "registerOnlySlaveBroker, pickupPartitionOrderTopicRouteData": [
        joins(SLAVE, shows=[ACTING]),
        joins(MASTER, shows=[BOTH]),
        joins(OTHER, shows=[BOTH, ANOTHER]),
        ends(1, [ACTING, ANOTHER]),
    ],
    "onChannelDestroy": [
        joins(MASTER, shows=[ALONE]),
        ends(1, []),
        joins(replace(MASTER, connection_id=3), OLD_SLAVE, shows=[BOTH]),
        ends(3, [LONE_SLAVE]),
    ],
    "switchBrokerRoleChannelDestroy": [
        joins(OLD_MASTER, OLD_SLAVE, shows=[BOTH]),
        ends(1, [LONE_SLAVE]),
        joins(PROMOTED, shows=[NEW_MASTER]),
        joins(DEMOTED, shows=[SWAPPED]),
        ends(2, [({1: MASTER_ADDR}, 6)]),
    ],
    "masterChangeFromSlave": [joins(OLD_MASTER, OLD_SLAVE, shows=[BOTH]), joins(PROMOTED, shows=[NEW_MASTER])],
    "deleteTopicWithBrokerRegistration": [
        joins(MASTER, OTHER, shows=[ALONE, ANOTHER]),
        joins(WITHOUT_THE_TOPIC, shows=[ANOTHER]),
    ],
    "registerSingleTopicWithBrokerRegistration": [
        added([]),
        joins(WITHOUT_THE_TOPIC, shows=[]),
        added([ALONE]),
        joins(WITHOUT_THE_TOPIC, shows=[]),
        added([ALONE]),
        leaves(MASTER, []),
    ],
}


@pytest.mark.parametrize("name", TESTS)
async def test_routes_are_as_in_apaches_tests(name: str) -> None:
    """After each step a client is told just this."""
    drops = "WithBrokerRegistration" in name
    scene = RouteScene(support_acting_master=True, delete_topic_with_broker_registration=drops)
    for act, shows in TESTS[name]:
        await act(scene)

        found = scene.json_cache.route("TestTopic")
        queues = {} if found is None else {each.broker_name: each.perm for each in found.queue_datas}
        groups = [] if found is None else found.broker_datas
        assert shows == [(dict(group.broker_addrs), queues[group.broker_name]) for group in groups]
        assert [] == violations(scene.tables)
