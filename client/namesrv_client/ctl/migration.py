"""Responses of two NameServers in RocketMQ's protocol, and the differences that brokers and clients notice.

This module reads bodies as they were on the wire, since our own client hides how they are encoded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from namesrv_client.ctl.comparison import (
    PRESENT,
    Difference,
    Fact,
    FactKind,
    Facts,
    Kind,
    Queues,
    Value,
    broker_facts,
    differing_facts,
    grouped,
    perm_text,
    spelled,
    static_queue_facts,
)
from namesrv_remoting.bodies.base import read_json
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo, TopicRouteData, read_route
from namesrv_remoting.codes import Permission

# Settings on which routes and other responses depend, and the difference that each makes.
_SETTINGS: Final[Mapping[str, str]] = {
    "orderMessageEnable": "only with it do routes have the order configuration of their topic",
    "supportActingMaster": "only with it does a slave stand in for a dead master in routes",
    "deleteTopicWithBrokerRegistration": "only with it does a topic go that its broker does not register any more",
    "returnOrderTopicConfigToBroker": "only with it do brokers learn the order configuration when they register",
    "notifyMinBrokerIdChanged": "only with it are brokers notified when their group's smallest id changes",
    "enableTopicList": "without it a cluster's topics cannot be listed",
    "enableAllTopicList": "without it topics cannot be listed",
}
# A member name as fastjson writes an integer: without quotes.
_BARE_KEY: Final = re.compile(rb"[{,]-?\d+:")
_OLD_FLAGS: Final = b'"topicSynFlag":'

_anything: Final = msgspec.json.Decoder(Any)


@dataclass(frozen=True, slots=True)
class Judged:
    """A difference, and whether and why brokers, clients or tools notice it."""

    # Names of all topics, brokers etc. with the same difference.
    names: Sequence[str]
    difference: Difference
    matters: bool
    why: str

    def document(self) -> dict[str, Any]:
        """The members for JSON and YAML."""
        return {
            "kind": self.difference.kind,
            "names": self.names,
            "fact": str(self.difference.fact),
            "values": spelled(self.difference.values),
            "matters": self.matters,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class TopicResponses:
    """The bodies of 105 for one topic to new clients, in standard JSON, and to those before 4.9.4; None: code 17."""

    standard: bytes | None
    old: bytes | None


def overview_facts(info: ClusterInfo) -> dict[tuple[Kind, str], Facts]:
    """The facts of every broker and every cluster."""
    by_subject = broker_facts(info)
    for cluster, names in info.cluster_addr_table.items():
        by_subject["cluster", cluster] = {Fact("groups"): ", ".join(sorted(names))}
    return by_subject


def setting_facts(configs: Mapping[str, Mapping[str, str]]) -> dict[str, dict[tuple[Kind, str], Facts]]:
    """For each server, the settings on which responses depend, as far as all servers report them."""
    common = [key for key in _SETTINGS if all(key in config for config in configs.values())]
    return {
        server: {("setting", key): {Fact("value"): config[key]} for key in common} for server, config in configs.items()
    }


def topic_facts(responses: TopicResponses, groups: Mapping[str, BrokerData], *, is_listed: bool) -> dict[Fact, Value]:
    """The facts of one server about one topic. Raises RemoteProtocolError for a body that is not a route.

    Addresses are facts of brokers: a route contributes only those that contradict the server's table of brokers.
    """
    if responses.standard is None:
        # An absent topic has a fact only if the topic list contains it.
        return {Fact("listed"): True} if is_listed else {}
    route = read_route(responses.standard)
    facts: dict[Fact, Value] = {
        PRESENT: True,
        Fact("listed"): is_listed,
        Fact("the same to clients before 4.9.4"): responses.old is not None
        and _in_order(read_route(responses.old)) == _in_order(route),
    }
    facts.update(_queue_facts(route))
    for group in route.broker_datas:
        if group != groups.get(group.broker_name):
            addresses = sorted(group.broker_addrs.items())
            where = ", ".join(f"{broker_id}={address}" for broker_id, address in addresses)
            facts[Fact("addresses of", group.broker_name)] = f"{group.cluster}: {where}"
    facts[Fact("order")] = route.order_topic_conf
    facts[Fact("filter servers")] = ", ".join(sorted(route.filter_server_table)) or None
    facts.update(static_queue_facts(route))
    facts[Fact("first broker")] = route.broker_datas[0].broker_name if route.broker_datas else None
    facts[Fact("integers as bare keys")] = bool(responses.old and _BARE_KEY.search(responses.old))
    facts[Fact("flags as topicSynFlag")] = _OLD_FLAGS in responses.standard
    members = _members(read_json(_anything, responses.standard, "TopicRouteData"))
    facts.update({Fact("member", member): True for member in members})
    return facts


def _in_order(route: TopicRouteData) -> TopicRouteData:
    return msgspec.structs.replace(
        route,
        broker_datas=sorted(route.broker_datas, key=lambda group: group.broker_name),
        queue_datas=sorted(route.queue_datas, key=lambda queues: queues.broker_name),
    )


def _queue_facts(route: TopicRouteData) -> Iterator[tuple[Fact, Value]]:
    for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name):
        name = queues.broker_name
        yield Fact("queues on", name), Queues(queues.read_queue_nums, queues.write_queue_nums)
        yield Fact("permission on", name), perm_text(queues.perm & (Permission.READ | Permission.WRITE))
        yield Fact("inheritance on", name), bool(queues.perm & Permission.INHERIT)
        yield Fact("flags on", name), queues.topic_sys_flag


def _members(body: object, path: str = "") -> Iterator[str]:
    """The names of all members, merged over the elements of a list; names that are data, such as ids, count as one."""
    if isinstance(body, list):
        for each in body:
            yield from _members(each, path)
    elif isinstance(body, dict):
        for name, value in body.items():
            here = f"{path}{name}"
            if isinstance(value, str | int | float | bool | None):
                if not path.endswith("brokerAddrs."):
                    yield here
            elif name not in ("filterServerTable", "topicQueueMappingByBroker"):
                yield from _members(value, f"{here}.")


def topic_differences(topic: str, facts: Mapping[str, Facts]) -> list[Difference]:
    """Differences of the servers about a topic; a topic that some servers lack is one difference."""
    having = [PRESENT in one for one in facts.values()]
    if any(having) and not all(having):
        return [Difference("topic", topic, PRESENT, {server: PRESENT in one for server, one in facts.items()})]
    return [Difference("topic", topic, fact, values) for fact, values in differing_facts(facts).items()]


def judged(differing: Iterable[Difference]) -> list[Judged]:
    """The differences with their verdicts, those that matter first."""
    verdicts = [Judged(names, one, *_verdict(one)) for names, one in grouped(differing)]
    return sorted(verdicts, key=lambda one: not one.matters)


def _verdict(one: Difference) -> tuple[bool, str]:
    """Whether a difference matters, and why."""
    if one.kind == "setting":
        return True, _SETTINGS[one.name]
    return _VERDICTS.get(one.kind, {}).get(one.fact.kind, (True, "responses differ"))


# Verdicts by kind of the thing and of the fact.
_VERDICTS: Final[Mapping[Kind, Mapping[FactKind, tuple[bool, str]]]] = {
    "broker": {
        "present": (True, "it has not registered there: it does not know that server, or cannot reach it"),
        "address": (True, "clients would connect to another place"),
        "zone": (True, "clients of a zone would see other brokers"),
        "acting master": (True, "whether a slave may stand in for its master depends on it"),
    },
    "cluster": {
        "present": (True, "no broker of it has registered there"),
        "groups": (True, "a broker has not registered there, or is in another cluster"),
    },
    "topic": {
        "present": (True, "clients of the one server would not find it"),
        "listed": (False, "only tools read the list of topics"),
        "the same to clients before 4.9.4": (True, "old and new clients of that server see other routes"),
        "order": (True, "producers of ordered messages take other queues"),
        "filter servers": (True, "consumers that filter by class would not find theirs"),
        "first broker": (False, "clients look brokers up by name; topicClusterList names the first one's cluster"),
        "integers as bare keys": (False, "clients read them with quotes and without"),
        "flags as topicSynFlag": (False, "only an mqadmin of 4.8 or older looks for the old name"),
        "queues on": (True, "clients would use other queues"),
        "permission on": (True, "clients would write or read elsewhere"),
        "inheritance on": (False, "clients only look at the bits for reading and writing"),
        "flags on": (True, "tools that change the topic copy its flags from the route"),
        "addresses of": (True, "the route contradicts that server's own table of brokers"),
        "static queues on": (True, "logical queues would lead to other brokers"),
        "member": (False, "clients take the default for a member that is missing, and skip one they do not know"),
    },
    "order config": {
        "present": (True, "producers of ordered messages may take other queues"),
        "value": (True, "producers of ordered messages may take other queues"),
    },
    "answer": {
        "code": (True, "clients act on the code"),
        "remark": (False, "clients act on the code and only log the text"),
    },
}
