"""The tables pass the tests that Apache's NameServer has for its own.

One test for each of theirs, under its name: RouteInfoManagerNewTest, RouteInfoManagerTest and its relatives. Theirs run
with supportActingMaster, one broker group (id 0 and id 1), and every registration carries `baseTopic`.
"""

from dataclasses import replace
from typing import Any

import pytest

from namesrv.routeinfo.records import RegisterResult, Registration
from namesrv_remoting.bodies.route import TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion
from tests.support.route_builders import RouteScene, addresses, body, key, queue_data, registration, rows
from tests.support.table_invariants import violations

MASTER_ADDR, SLAVE_ADDR = "127.0.0.1:10911", "127.0.0.1:30911"


def broker(broker_id: int, broker_addr: str, *topics: str, **fields: Any) -> Registration:
    """A member of Default_Broker with these topics, and baseTopic."""
    return replace(
        registration("Default_Broker", broker_id, broker_addr, body=body("baseTopic", *topics)),
        **{"cluster_name": "Default_Cluster", "enable_acting_master": True, **fields},
    )


def master(*topics: str, **fields: Any) -> Registration:
    """The master, on connection 1."""
    return replace(broker(0, MASTER_ADDR, *topics, ha_server_addr="127.0.0.1:20911"), **fields)


def slave(*topics: str, **fields: Any) -> Registration:
    """The slave, on connection 2."""
    return replace(broker(1, SLAVE_ADDR, *topics, ha_server_addr="127.0.0.1:40911", connection_id=2), **fields)


M, S = master("t").key, slave("t").key


@pytest.fixture
def scene() -> RouteScene:
    """An empty server whose slaves may act."""
    return RouteScene(support_acting_master=True)


def route(scene: RouteScene, name: str) -> TopicRouteData | None:
    """What a client is told."""
    return scene.json_cache.route(name)


def shown(scene: RouteScene, name: str) -> tuple[dict[int, str], int] | None:
    """The only group's addresses, and its permission; None without a route."""
    found = route(scene, name)
    if found is None:
        return None
    (group,), (queues,) = found.broker_datas, found.queue_datas
    return dict(group.broker_addrs), queues.perm


# ---- RouteInfoManagerNewTest ----


async def test_get_all_cluster_info(scene: RouteScene) -> None:
    """Both clusters, both names, addresses under id 0."""
    await scene.register(
        master("t"), broker(0, "127.0.0.1:10922", "t", cluster_name="Other_Cluster", broker_name="Other_Broker")
    )

    assert {
        "Default_Cluster": frozenset({"Default_Broker"}),
        "Other_Cluster": frozenset({"Other_Broker"}),
    } == scene.tables.cluster_addr_table
    assert {"Default_Broker": {0: MASTER_ADDR}, "Other_Broker": {0: "127.0.0.1:10922"}} == addresses(scene.tables)


async def test_delete_topic(scene: RouteScene) -> None:
    """A plain delete leaves no route; with two clusters and one named, the other broker remains."""
    await scene.register(master("TestTopic"))
    await scene.manager.delete_topic("TestTopic", None)
    assert route(scene, "TestTopic") is None

    other = broker(0, "127.0.0.1:10922", "TestTopic", cluster_name="Other_Cluster", broker_name="Other_Broker")
    await scene.register(master("TestTopic"), other)
    await scene.manager.delete_topic("TestTopic", "Default_Cluster")
    assert ({0: "127.0.0.1:10922"}, 6) == shown(scene, "TestTopic")


async def test_get_all_topic_list(scene: RouteScene) -> None:
    """None, then the three and baseTopic."""
    assert [] == list(scene.tables.topic_queue_table)

    await scene.register(master("TestTopic", "TestTopic1", "TestTopic2"))

    assert ["TestTopic", "TestTopic1", "TestTopic2", "baseTopic"] == sorted(scene.tables.topic_queue_table)


async def test_register_broker(scene: RouteScene) -> None:
    """The master is told nothing, the slave where its master is."""
    assert [RegisterResult(), RegisterResult(MASTER_ADDR, "127.0.0.1:20911")] == await scene.register(
        master("TestTopic"), slave("TestTopic")
    )


async def test_unregister_broker(scene: RouteScene) -> None:
    """All three routes are gone."""
    await scene.register(master("TestTopic", "TestTopic1", "TestTopic2"))

    await scene.manager.unregister(M, "Default_Broker", 1)

    assert [None] * 3 == [route(scene, name) for name in ("TestTopic", "TestTopic1", "TestTopic2")]


async def test_register_slave_broker(scene: RouteScene) -> None:
    """The route has both ids."""
    await scene.register(master("TestTopic"))
    assert ({0: MASTER_ADDR}, 6) == shown(scene, "TestTopic")

    await scene.register(slave("TestTopic"))
    assert ({0: MASTER_ADDR, 1: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")


async def test_create_new_topic(scene: RouteScene) -> None:
    """A topic that the master adds later has both ids as well."""
    await scene.register(master("TestTopic"), slave("TestTopic"))

    await scene.register(master(body=body("baseTopic", "TestTopic", "TestTopic1", counter=2)))

    assert ({0: MASTER_ADDR, 1: SLAVE_ADDR}, 6) == shown(scene, "TestTopic1")


async def test_switch_broker_role(scene: RouteScene) -> None:
    """Without acting masters: the master goes, the slave takes its id, the old master comes back as the slave."""
    plain = {"enable_acting_master": False}
    await scene.register(master("TestTopic", **plain), slave("TestTopic", **plain))

    await scene.manager.unregister(M, "Default_Broker", 1)
    assert ({1: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")

    await scene.register(slave("TestTopic", broker_id=0, **plain))
    assert ({0: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")

    await scene.register(master("TestTopic", broker_id=1, connection_id=3, **plain))
    assert ({0: SLAVE_ADDR, 1: MASTER_ADDR}, 6) == shown(scene, "TestTopic")


async def test_un_register_slave_broker(scene: RouteScene) -> None:
    """Id 0 remains."""
    await scene.register(master("TestTopic"), slave("TestTopic"))

    await scene.manager.unregister(S, "Default_Broker", 2)

    assert ({0: MASTER_ADDR}, 6) == shown(scene, "TestTopic")


async def test_un_register_master_broker(scene: RouteScene) -> None:
    """The slave appears under id 0, and is not writable."""
    await scene.register(master("TestTopic"), slave("TestTopic"))

    await scene.manager.unregister(M, "Default_Broker", 1)

    assert ({0: SLAVE_ADDR}, 4) == shown(scene, "TestTopic")


@pytest.mark.parametrize("acts", [False, None])
async def test_un_register_master_broker_old_version(scene: RouteScene, acts: bool | None) -> None:
    """No id 0, and perm stays 6."""
    await scene.register(master("t", enable_acting_master=acts), slave("t", enable_acting_master=acts))

    await scene.manager.unregister(M, "Default_Broker", 1)

    assert ({1: SLAVE_ADDR}, 6) == shown(scene, "t")


async def test_submit_multi_un_register_requests(scene: RouteScene) -> None:
    """Two brokers are gone, one request after the other."""
    other = broker(0, "127.0.0.1:10922", "TestTopic1", broker_name="Other_Broker")
    await scene.register(master("TestTopic"), other)

    await scene.manager.unregister(M, "Default_Broker", 1)
    await scene.manager.unregister(other.key, "Other_Broker", 1)

    assert ({}, {}, {}) == (addresses(scene.tables), rows(scene.tables), scene.tables.cluster_addr_table)


async def test_pickup_topic_route_data(scene: RouteScene) -> None:
    """One broker with 8, 8 and 6; with a second name two and two."""
    await scene.register(master("TestTopic"))
    found = route(scene, "TestTopic")
    assert found is not None
    assert ([queue_data("Default_Broker", 8, 6)], 1) == (list(found.queue_datas), len(found.broker_datas))

    await scene.register(broker(0, "127.0.0.1:10922", "TestTopic", broker_name="Other_Broker"))
    found = route(scene, "TestTopic")
    assert found is not None
    assert (2, 2) == (len(found.queue_datas), len(found.broker_datas))


async def test_pickup_topic_route_data_with_slave(scene: RouteScene) -> None:
    """The master leaves: one address, not writable. It is back: two, writable."""
    await scene.register(master("TestTopic"), slave("TestTopic"))

    await scene.manager.unregister(M, "Default_Broker", 1)
    assert ({0: SLAVE_ADDR}, 4) == shown(scene, "TestTopic")

    await scene.register(master("TestTopic"))
    assert ({0: MASTER_ADDR, 1: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")


async def test_pickup_partition_order_topic_route_data(scene: RouteScene) -> None:
    """A lone slave is shown as id 0, not writable; after the loss of a master the same; other groups stay."""
    order = "rmq_partition_order"
    await scene.register(slave(order))
    assert ({0: SLAVE_ADDR}, 4) == shown(scene, order)

    await scene.register(master(order))
    assert ({0: MASTER_ADDR, 1: SLAVE_ADDR}, 6) == shown(scene, order)

    await scene.register(broker(0, "127.0.0.1:10922", order, broker_name="Other_Broker", connection_id=5))
    await scene.close(1)
    found = route(scene, order)
    assert found is not None
    assert [{0: SLAVE_ADDR}, {0: "127.0.0.1:10922"}] == [group.broker_addrs for group in found.broker_datas]
    assert [4, 6] == [queues.perm for queues in found.queue_datas]


async def test_register_only_slave_broker(scene: RouteScene) -> None:
    """It is not writable until its master is back."""
    await scene.register(slave("TestTopic"))
    assert ({0: SLAVE_ADDR}, 4) == shown(scene, "TestTopic")

    await scene.register(master("TestTopic"))
    assert ({0: MASTER_ADDR, 1: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")


async def test_on_channel_destroy(scene: RouteScene) -> None:
    """The routes of a connection go with it."""
    await scene.register(master("TestTopic", "TestTopic1"))
    await scene.close(1)
    assert [None, None] == [route(scene, name) for name in ("TestTopic", "TestTopic1")]

    await scene.register(master("TestTopic", connection_id=3), slave("TestTopic", enable_acting_master=False))
    await scene.close(3)
    assert ({1: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")


async def test_switch_broker_role_channel_destroy(scene: RouteScene) -> None:
    """The slave's connection ends first, then it comes back as the master, and the master's ends."""
    plain = {"enable_acting_master": False}
    await scene.register(master("TestTopic", **plain), slave("TestTopic", **plain))

    await scene.close(1)
    assert ({1: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")

    await scene.register(slave("TestTopic", broker_id=0, **plain))
    assert ({0: SLAVE_ADDR}, 6) == shown(scene, "TestTopic")

    await scene.register(master("TestTopic", broker_id=1, connection_id=3, **plain))
    await scene.close(2)
    assert ({1: MASTER_ADDR}, 6) == shown(scene, "TestTopic")


async def test_delete_topic_with_broker_registration(scene: RouteScene) -> None:
    """The setting is on: it goes, for this broker only."""
    scene.options.delete_topic_with_broker_registration = True
    other = broker(0, "127.0.0.1:10922", "TestTopic", "TestTopic1", broker_name="Other_Broker")
    await scene.register(master("TestTopic", "TestTopic1"), other)

    await scene.register(master(body=body("baseTopic", "TestTopic1", counter=2)))

    assert {
        "TestTopic": {"Other_Broker": 6},
        "TestTopic1": {"Default_Broker": 6, "Other_Broker": 6},
        "baseTopic": {"Default_Broker": 6, "Other_Broker": 6},
    } == rows(scene.tables)


async def test_register_single_topic_with_broker_registration(scene: RouteScene) -> None:
    """For an unknown broker ignored; then taken; gone with the next full registration without it."""
    scene.options.delete_topic_with_broker_registration = True
    single = [queue_data("Default_Broker")]
    await scene.manager.register_topic("TestTopic1", single)
    assert route(scene, "TestTopic1") is None

    await scene.register(master("TestTopic"))
    await scene.manager.register_topic("TestTopic1", single)
    assert ({0: MASTER_ADDR}, 6) == shown(scene, "TestTopic1")

    await scene.register(master(body=body("baseTopic", "TestTopic", counter=2)))
    assert route(scene, "TestTopic1") is None

    await scene.manager.register_topic("TestTopic1", single)
    await scene.manager.unregister(M, "Default_Broker", 1)
    assert {} == rows(scene.tables)


# ---- RouteInfoManagerTest, …BrokerPermTest ----


async def test_query_broker_topic_config(scene: RouteScene) -> None:
    """Two clusters, one address: two versions."""
    await scene.register(
        registration("default-broker", 1234, MASTER_ADDR, body=body("a", "b", counter=10), cluster_name="c1"),
        registration("default-broker-1", 1234, MASTER_ADDR, body=body("a", "b", counter=20), cluster_name="c2"),
    )

    versions = [scene.data_version(key(MASTER_ADDR, cluster), 1) for cluster in ("c1", "c2")]
    assert [DataVersion(10), DataVersion(20)] == versions


# ---- RouteInfoManagerBrokerRegisterTest, …StaticRegisterTest: three names, three ids each, ten topics ----

NAMES = ["cluster-broker-0", "cluster-broker-1", "cluster-broker-2"]
TOPICS = [f"topic-{number}" for number in range(10)]


async def register_cluster(scene: RouteScene) -> None:
    """The base class's cluster."""
    for name in NAMES:
        for broker_id in range(3):
            addr = f"{name}:{broker_id}"
            await scene.register(
                registration(
                    name, broker_id, addr, *TOPICS, cluster_name="cluster", enable_acting_master=False, connection_id=9
                )
            )


async def test_master_change_from_slave(scene: RouteScene) -> None:
    """A slave's address that registers as id 0 becomes the master."""
    await register_cluster(scene)

    changed = registration(NAMES[0], 0, f"{NAMES[0]}:1", *TOPICS, cluster_name="cluster", enable_acting_master=False)
    await scene.register(changed)

    assert {0: f"{NAMES[0]}:1", 2: f"{NAMES[0]}:2"} == addresses(scene.tables)[NAMES[0]]
    assert [] == violations(scene.tables)


async def test_static_register(scene: RouteScene) -> None:
    """One cluster with exactly these names, all topics; the route has every broker; deleted is none."""
    await register_cluster(scene)

    assert {"cluster": frozenset(NAMES)} == scene.tables.cluster_addr_table
    assert TOPICS == sorted(scene.tables.topic_queue_table)
    found = route(scene, "topic-3")
    assert found is not None
    assert [queue_data(name) for name in NAMES] == list(found.queue_datas)
    assert [{number: f"{name}:{number}" for number in range(3)} for name in NAMES] == [
        group.broker_addrs for group in found.broker_datas
    ]

    await scene.manager.delete_topic("topic-3", None)
    assert route(scene, "topic-3") is None
