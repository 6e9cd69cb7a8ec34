"""Every kind of request: one row with its code, who sends it, who may, and what it carries.

A new kind of request is a number in `codes`, a row here, its handler in the daemon's `processors`, and the call of
whoever sends it. Dispatch, access rules, quotas, metrics and tests read this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from namesrv_remoting.bodies.extensions import (
    ListBrokersRequest,
    ListConnectionsRequest,
    Question,
    RecentEventsRequest,
)
from namesrv_remoting.codes import FIRST_EXTENSION, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RequestCodeNotSupportedError
from namesrv_remoting.headers import (
    BrokerHeartbeatRequestHeader,
    BrokerNameRequestHeader,
    ClusterRequestHeader,
    ExtHeader,
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    KVConfigKeyRequestHeader,
    NamespaceRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    TopicRequestHeader,
    UnregisterBrokerRequestHeader,
)

Sender = Literal["broker", "client", "admin", "server"]


class AccessClass(StrEnum):
    """What a request does, as far as permission goes."""

    ROUTE_READ = "route-read"
    BROKER_CONTROL = "broker-control"
    ADMIN_READ = "admin-read"
    ADMIN_WRITE = "admin-write"
    # about oneself and the server; every account may, and no rule says so
    ANY_ACCOUNT = "any-account"


@dataclass(frozen=True, slots=True)
class RequestKind:
    """One kind of request."""

    code: RequestCode
    # the role of the connections that it comes over
    sender: Sender
    access_class: AccessClass
    # its ext fields; None: it has none
    header: type[ExtHeader] | None = None
    # its native body; None: it has none, or its handler decodes the body in steps or in several dialects
    body: type[Question] | None = None
    # what it names: rules can be narrowed by that, and a narrowed rule grants no request that does not name it
    names: frozenset[str] = frozenset()
    # what a rule may be narrowed by all the same
    exempt: frozenset[str] = frozenset()
    # True: the response may wait for an event, and does not hold up later requests of the connection
    may_wait: bool = False

    @property
    def is_extension(self) -> bool:
        """True for a request that only the native protocol has."""
        return self.code >= FIRST_EXTENSION

    def values(self, command: RemotingCommand) -> tuple[ExtHeader | Question, ...]:
        """The typed header and body of a request, those that it has.

        Raises:
            BadRequestError: a field or the body cannot be read.
            RequestCodeNotSupportedError: an extension in another protocol than the native one.
        """
        if self.is_extension and not command.is_native:
            raise RequestCodeNotSupportedError(
                f" request type {self.code:d} not supported but with serialize type {SerializeType.MSGPACK:d}"
            )
        header = () if self.header is None else (self.header.from_ext(command.ext_fields),)
        return header if self.body is None else (*header, self.body.read(command.body))


def _table() -> Mapping[int, RequestKind]:
    code, each, kind = RequestCode, AccessClass, RequestKind
    cluster, broker, topic = frozenset({"clusters"}), frozenset({"brokers"}), frozenset({"topics"})
    group, address = cluster | broker, frozenset({"broker_addresses"})
    one, all_of_one = group | address, group | address | topic

    def control(number: RequestCode, header: type[ExtHeader], sender: Sender = "broker") -> RequestKind:
        # a broker's topics and its address are those that it registers, whatever else it asks
        return kind(number, sender, each.BROKER_CONTROL, header, names=group, exempt=topic | address)

    def of_one(number: RequestCode, header: type[ExtHeader]) -> RequestKind:
        return kind(number, "broker", each.BROKER_CONTROL, header, names=one, exempt=topic)

    rows = (
        kind(code.REGISTER_BROKER, "broker", each.BROKER_CONTROL, RegisterBrokerRequestHeader, names=all_of_one),
        of_one(code.UNREGISTER_BROKER, UnregisterBrokerRequestHeader),
        of_one(code.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader),
        of_one(code.QUERY_DATA_VERSION, QueryDataVersionRequestHeader),
        control(code.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader),
        control(code.NOTIFY_MIN_BROKER_ID_CHANGE, NotifyMinBrokerIdChangeRequestHeader, "server"),
        kind(code.GET_ROUTEINFO_BY_TOPIC, "client", each.ROUTE_READ, GetRouteInfoRequestHeader, names=topic),
        kind(code.PULL_ROUTES, "client", each.ROUTE_READ, names=topic, may_wait=True),
        # a 5.x broker asks it every ten seconds, and cannot sign well enough for administration
        kind(code.GET_BROKER_CLUSTER_INFO, "admin", each.ROUTE_READ),
        kind(code.GET_KV_CONFIG, "admin", each.ADMIN_READ, KVConfigKeyRequestHeader),
        kind(code.GET_KVLIST_BY_NAMESPACE, "admin", each.ADMIN_READ, NamespaceRequestHeader),
        kind(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "admin", each.ADMIN_READ),
        kind(code.GET_TOPICS_BY_CLUSTER, "admin", each.ADMIN_READ, ClusterRequestHeader, names=cluster),
        kind(code.GET_SYSTEM_TOPIC_LIST_FROM_NS, "admin", each.ADMIN_READ),
        kind(code.GET_UNIT_TOPIC_LIST, "admin", each.ADMIN_READ),
        kind(code.GET_HAS_UNIT_SUB_TOPIC_LIST, "admin", each.ADMIN_READ),
        kind(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "admin", each.ADMIN_READ),
        kind(code.GET_NAMESRV_CONFIG, "admin", each.ADMIN_READ),
        kind(code.PUT_KV_CONFIG, "admin", each.ADMIN_WRITE, PutKVConfigRequestHeader),
        kind(code.DELETE_KV_CONFIG, "admin", each.ADMIN_WRITE, KVConfigKeyRequestHeader),
        kind(code.WIPE_WRITE_PERM_OF_BROKER, "admin", each.ADMIN_WRITE, BrokerNameRequestHeader, names=group),
        kind(code.ADD_WRITE_PERM_OF_BROKER, "admin", each.ADMIN_WRITE, BrokerNameRequestHeader, names=group),
        kind(code.DELETE_TOPIC_IN_NAMESRV, "admin", each.ADMIN_WRITE, TopicRequestHeader, names=cluster | topic),
        kind(code.REGISTER_TOPIC_IN_NAMESRV, "admin", each.ADMIN_WRITE, TopicRequestHeader, names=topic),
        kind(code.UPDATE_NAMESRV_CONFIG, "admin", each.ADMIN_WRITE),
        # native clients begin with it
        kind(code.SERVER_INFO, "admin", each.ANY_ACCOUNT),
        kind(code.RECENT_EVENTS, "admin", each.ADMIN_READ, body=RecentEventsRequest),
        kind(code.LIST_CONNECTIONS, "admin", each.ADMIN_READ, body=ListConnectionsRequest),
        kind(code.LIST_BROKERS, "admin", each.ADMIN_READ, body=ListBrokersRequest),
        kind(code.WHO_AM_I, "admin", each.ANY_ACCOUNT),
        kind(code.LIST_SETTINGS, "admin", each.ADMIN_READ),
    )
    return {int(row.code): row for row in rows}


# request code -> its kind; a code that is not here is denied to everybody
REQUESTS: Final[Mapping[int, RequestKind]] = _table()
