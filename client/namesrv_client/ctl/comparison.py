"""Comparison of brokers and topics on several NameServers: facts, and where they differ."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from namesrv_client.health import subject_of
from namesrv_remoting.bodies.route import ClusterInfo, TopicRouteData
from namesrv_remoting.codes import Permission

Kind = Literal["broker", "topic", "cluster", "order config", "setting", "answer"]
Fact = str | int | bool | None
# Facts of one server about one broker or topic, by name.
Facts = Mapping[str, Fact]
# Facts of one server about all its brokers and topics.
View = Mapping[tuple[Kind, str], Facts]

# Name of the fact that a broker or topic exists.
PRESENT: Final = "present"


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact about which servers disagree; `values` has the value on each server, in the servers' order."""

    kind: Kind
    name: str
    fact: str
    values: Mapping[str, Fact]


def differences(views: Mapping[str, View]) -> list[Difference]:
    """All differences: brokers first, by name. A broker or topic that some servers lack is one difference."""
    differing = []
    for key in sorted(frozenset().union(*views.values())):
        having = {server: view[key] for server, view in views.items() if key in view}
        if len(having) < len(views):
            differing.append(Difference(*key, PRESENT, {server: server in having for server in views}))
        differing += [Difference(*key, fact, values) for fact, values in disagreements(having).items()]
    return differing


def same_servers(boot_ids: Mapping[str, str | None]) -> list[str]:
    """A line for each server that several addresses name; Apache's server has no boot id, and is never recognised."""
    addresses: dict[str, list[str]] = {}
    for address, boot_id in boot_ids.items():
        if boot_id is not None:
            addresses.setdefault(boot_id, []).append(address)
    return [f"{' and '.join(each)} are the same server" for each in addresses.values() if len(each) > 1]


def disagreements(facts: Mapping[str, Facts]) -> dict[str, dict[str, Fact]]:
    """Each fact with different values, and its value on each server."""
    names = dict.fromkeys(name for one in facts.values() for name in one)
    by_name = {name: {who: one.get(name) for who, one in facts.items()} for name in names}
    return {name: values for name, values in by_name.items() if len(set(values.values())) > 1}


def broker_facts(info: ClusterInfo) -> dict[tuple[Kind, str], Facts]:
    """Every instance of every group, as `cluster/name/id`."""
    return {
        ("broker", subject_of((group.cluster, group.broker_name, broker_id))): {
            "address": address,
            "zone": group.zone_name,
            "acting master": group.enable_acting_master,
        }
        for group in info.broker_addr_table.values()
        for broker_id, address in group.broker_addrs.items()
    }


def view_of(info: ClusterInfo, routes: Mapping[str, TopicRouteData | None]) -> View:
    """The facts of every broker and every topic.

    Addresses are facts of brokers only, so that a lost slave is not a difference of each topic.
    """
    view = broker_facts(info)
    view.update({("topic", topic): route_facts(data) for topic, data in routes.items() if data is not None})
    return view


def route_facts(data: TopicRouteData) -> dict[str, Fact]:
    """The queues of one topic, by broker."""
    facts: dict[str, Fact] = {}
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        counts = f"{queues.read_queue_nums} read, {queues.write_queue_nums} write, {perm_text(queues.perm)}"
        flags = f", flags {queues.topic_sys_flag}" if queues.topic_sys_flag else ""
        facts[f"queues on {queues.broker_name}"] = counts + flags
    facts["order"] = data.order_topic_conf
    return facts | static_queue_facts(data)


def static_queue_facts(data: TopicRouteData) -> dict[str, Fact]:
    """The physical queues of each broker to which the logical queues of a static topic lead."""
    facts: dict[str, Fact] = {}
    for name, info in sorted((data.topic_queue_mapping_by_broker or {}).items()):
        pairs = sorted((info.curr_id_map or {}).items())
        facts[f"static queues on {name}"] = ", ".join(f"{logical}={physical}" for logical, physical in pairs)
    return facts


def facts_with_addresses(data: TopicRouteData) -> dict[str, Fact]:
    """The facts of a route, with the addresses of its brokers."""
    return route_facts(data) | {
        f"address of {group.broker_name}/{broker_id}": address
        for group in data.broker_datas
        for broker_id, address in sorted(group.broker_addrs.items())
    }


def grouped(differing: Iterable[Difference]) -> list[tuple[list[str], Difference]]:
    """Groups of equal differences, in the order of their first.

    A broker that a server lacks is missing in all its topics, which are then one group.
    """
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for one in differing:
        # Brokers are few, and each matters, so each is a group of its own.
        own = one.name if one.kind == "broker" else ""
        groups.setdefault((one.kind, own, one.fact, *one.values.items()), []).append(one)
    return [([one.name for one in group], group[0]) for group in groups.values()]


def perm_text(perm: int) -> str:
    """A permission as RocketMQ writes it: read, write, inherit."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", Permission.READ), ("W", Permission.WRITE), ("X", Permission.INHERIT))
    )
