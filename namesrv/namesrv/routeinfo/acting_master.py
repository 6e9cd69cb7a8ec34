"""Acting master: what a broker group may do while its master is gone.

The prime slave of a group without a master is its slave with the smallest id. A group of RocketMQ 5.x may let its prime
slave act as master (`enableActingMaster` of its registrations). The rules, by that flag:

- A master's registration makes routes. Without a master, the prime slave's registration makes them if it sends the flag
  (true or false), so that the group's topics can still be read. Slaves older than 5.x send no flag and make no routes.
- Flag true: the topics of the group lose the write permission when its master leaves or becomes a slave, and a
  registration of a slave does not restore it. With the setting `support_acting_master`, routes show clients the
  prime slave under the master's id, as the acting master; but not the routes of writable topics, since some clients
  take the write permission as a sign of a master. Only this rule depends on the setting, see `RouteInputs.route`.
- Flag false: the permissions stay when the master leaves, and the prime slave registers its topics with the permissions
  that it sends.

Members of a group request the route of a special topic (`rmq_sys_SYNC_BROKER_MEMBER_…`), which shows the group
unchanged.
"""

from collections.abc import Collection

from namesrv_remoting.bodies.route import BrokerData, QueueData
from namesrv_remoting.codes import MASTER_ID, PERM_WRITE, SYNC_BROKER_MEMBER_PREFIX


def makes_routes(broker_id: int, group_ids: Collection[int], *, enable_acting_master: bool | None) -> bool:
    """True if the registration of a broker makes routes in a group with these ids.

    Brokers older than 5.x do not know acting masters: their `enable_acting_master` is None. As in Java, an id below
    zero is the smallest even beside a master, and makes routes.
    """
    return broker_id == MASTER_ID or (enable_acting_master is not None and broker_id == min(group_ids))


def registers_without_write(broker_id: int, *, enable_acting_master: bool | None) -> bool:
    """True for a registration of a slave whose flag is true: its topics lose the write permission."""
    return broker_id != MASTER_ID and bool(enable_acting_master)


def loses_write(remaining_ids: Collection[int], *, enable_acting_master: bool) -> bool:
    """True if the topics of a group lose the write permission when only these broker ids remain."""
    return enable_acting_master and min(remaining_ids) > MASTER_ID


def is_shown_as_it_is(topic: str) -> bool:
    """True for topics by which members see their group: such a route shows no slave in the master's place."""
    return topic.startswith(SYNC_BROKER_MEMBER_PREFIX)


def shown_to_clients(group: BrokerData, queues: QueueData, registered_ids: Collection[int]) -> BrokerData:
    """Return a group as clients see it: if the flag is true and `queues` are not writable, the prime slave has id 0.

    `group` may lack brokers of the registered group, because an address view hides them.
    """
    if queues.perm & PERM_WRITE or MASTER_ID in registered_ids or not group.enable_acting_master:
        return group
    acting = min(registered_ids)
    addrs = {MASTER_ID if i == acting else i: addr for i, addr in group.broker_addrs.items()}
    return BrokerData(group.cluster, group.broker_name, addrs, group.zone_name, group.enable_acting_master)
