"""Comparison of brokers and topics on several NameServers: facts, and where they differ."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from namesrv_client.health import subject_of
from namesrv_remoting.bodies.route import ClusterInfo, TopicRouteData
from namesrv_remoting.codes import PERM_READ, PERM_WRITE, Permission

Kind = Literal["broker", "topic", "cluster", "order config", "setting", "answer"]
# The text of each kind is part of the JSON documents.
FactKind = Literal[
    "present",
    "address",
    "zone",
    "acting master",
    "write removed",
    "order",
    # Each of these kinds has a fact for every broker group or broker.
    "queues on",
    "static queues on",
    "address of",
    "write removed on",
    # Only `migrate check` compares the following kinds; "member" has a fact for every member of the body.
    "groups",
    "value",
    "code",
    "remark",
    "listed",
    "the same to clients before 4.9.4",
    "permission on",
    "inheritance on",
    "flags on",
    "addresses of",
    "filter servers",
    "first broker",
    "integers as bare keys",
    "flags as topicSynFlag",
    "member",
]


class Fact(NamedTuple):
    """The name of a fact; `str()` is its text in tables and JSON documents."""

    kind: FactKind
    # The broker group, broker or member; empty for a kind that has a single fact.
    of: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.of}" if self.of else self.kind


class Queues(NamedTuple):
    """The queues of a topic on one broker group; `str()` is their text in tables and JSON documents."""

    read: int
    write: int
    # As RocketMQ writes it; empty where the permission is a fact of its own.
    perm: str = ""
    flags: int = 0

    def __str__(self) -> str:
        perm = f", {self.perm}" if self.perm else ""
        flags = f", flags {self.flags}" if self.flags else ""
        return f"{self.read} read, {self.write} write{perm}{flags}"


Value = str | int | bool | Queues | None
# The values of one server for one broker or topic.
Facts = Mapping[Fact, Value]
# The values of one server for all its brokers and topics.
View = Mapping[tuple[Kind, str], Facts]

# The fact that a broker or topic exists.
PRESENT: Final = Fact("present")


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact about which servers disagree; `values` has the value on each server, in the servers' order."""

    kind: Kind
    name: str
    fact: Fact
    values: Mapping[str, Value]

    @property
    def line_key(self) -> tuple[object, ...]:
        """The same for differences that one line shows, such as those of all topics of a broker that a server lacks."""
        # Brokers are few, and each matters, so each has a line of its own.
        own = self.name if self.kind == "broker" else ""
        return self.kind, own, self.fact, *self.values.items()

    def document(self) -> dict[str, Any]:
        """The members for JSON and YAML."""
        return {"kind": self.kind, "name": self.name, "fact": str(self.fact), "values": spelled(self.values)}


def spelled(values: Mapping[str, Value]) -> dict[str, str | int | bool | None]:
    """The same values for JSON and YAML, with queues as text."""
    return {key: str(value) if isinstance(value, Queues) else value for key, value in values.items()}


def differences(views: Mapping[str, View]) -> list[Difference]:
    """All differences: brokers first, by name. A broker or topic that some servers lack is one difference."""
    differing = []
    for key in sorted(frozenset().union(*views.values())):
        having = {server: view[key] for server, view in views.items() if key in view}
        if len(having) < len(views):
            differing.append(Difference(*key, PRESENT, {server: server in having for server in views}))
        differing += [Difference(*key, fact, values) for fact, values in differing_facts(having).items()]
    return differing


def same_servers(boot_ids: Mapping[str, str | None]) -> list[str]:
    """A line for each server that several addresses name."""
    return [f"{' and '.join(each)} are the same server" for each in addresses_of_one_server(boot_ids)]


def addresses_of_one_server(boot_ids: Mapping[str, str | None]) -> list[list[str]]:
    """The addresses of each server that has several; Apache's server has no boot id, and is never recognised."""
    addresses: dict[str, list[str]] = {}
    for address, boot_id in boot_ids.items():
        if boot_id is not None:
            addresses.setdefault(boot_id, []).append(address)
    return [each for each in addresses.values() if len(each) > 1]


def differing_facts(facts: Mapping[str, Facts]) -> dict[Fact, dict[str, Value]]:
    """Each fact with different values, and its value on each server."""
    every = dict.fromkeys(fact for one in facts.values() for fact in one)
    by_fact = {fact: {server: one.get(fact) for server, one in facts.items()} for fact in every}
    return {fact: values for fact, values in by_fact.items() if len(set(values.values())) > 1}


def broker_facts(info: ClusterInfo) -> dict[tuple[Kind, str], Facts]:
    """Every instance of every group, as `cluster/name/id`."""
    return {
        ("broker", subject_of((group.cluster, group.broker_name, broker_id))): {
            Fact("address"): address,
            Fact("zone"): group.zone_name,
            Fact("acting master"): group.enable_acting_master,
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


def route_facts(data: TopicRouteData) -> dict[Fact, Value]:
    """The queues of one topic, by broker, and its order configuration."""
    facts: dict[Fact, Value] = {}
    for each in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        queues = Queues(each.read_queue_nums, each.write_queue_nums, perm_text(each.perm), each.topic_sys_flag)
        facts[Fact("queues on", each.broker_name)] = queues
    facts[Fact("order")] = data.order_topic_conf
    return facts | static_queue_facts(data)


def static_queue_facts(data: TopicRouteData) -> dict[Fact, Value]:
    """The physical queues of each broker to which the logical queues of a static topic lead."""
    facts: dict[Fact, Value] = {}
    for name, info in sorted((data.topic_queue_mapping_by_broker or {}).items()):
        pairs = sorted((info.curr_id_map or {}).items())
        facts[Fact("static queues on", name)] = ", ".join(f"{logical}={physical}" for logical, physical in pairs)
    return facts


def facts_with_addresses(data: TopicRouteData) -> dict[Fact, Value]:
    """The facts of a route, with the addresses of its brokers."""
    return route_facts(data) | {
        Fact("address of", f"{group.broker_name}/{broker_id}"): address
        for group in data.broker_datas
        for broker_id, address in sorted(group.broker_addrs.items())
    }


def grouped(differing: Iterable[Difference]) -> list[tuple[list[str], Difference]]:
    """Groups of equal differences, each as its names and its first difference."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for one in differing:
        groups.setdefault(one.line_key, []).append(one)
    return [([one.name for one in group], group[0]) for group in groups.values()]


def perm_text(perm: int) -> str:
    """A permission as RocketMQ writes it: read, write, inherit."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", Permission.INHERIT.value))
    )
