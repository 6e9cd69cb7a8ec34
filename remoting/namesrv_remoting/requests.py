"""Table of all kinds of requests: code, sender, access class, header and body of each.

Dispatcher, access rules, quotas, metrics and tests read this table. A new kind of request needs, in this order:

1. a number in `codes`, and a row here; for ext fields a header in `headers`, and their values for fuzzing in
   tests/fuzz/frames.py; for the body of an extension's request or response a struct in `bodies.extensions`;
2. a handler in namesrv/namesrv/processors/, with a row in `table.py` there. The handler is in `extensions.py` for an
   extension, and otherwise in the file of its sender. A handler that goes through the tables yields, and charges its
   work to the peer's network, as in `topic_lists.py`;
3. a call in the program that sends it, if one does: client/namesrv_client/ctl/nameserver.py for requests of operators;
4. its number in the table of docs/protocol.md, unless a range there has it, and for an extension a row in the table of
   namesrv/README.md. `python -m tests.docs.generated` writes the access classes in docs/security.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from namesrv_remoting.bodies.extensions import (
    ListBrokersRequest,
    ListConnectionsRequest,
    RecentEventsRequest,
    RequestBody,
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
    """The classes of requests that access rules grant."""

    ROUTE_READ = "route-read"
    BROKER_CONTROL = "broker-control"
    ADMIN_READ = "admin-read"
    ADMIN_WRITE = "admin-write"
    # requests about the peer itself and the server, which every account may send without a rule
    ANY_ACCOUNT = "any-account"


@dataclass(frozen=True, slots=True)
class RequestKind:
    """One kind of request: a row of the table, which dispatcher, access rules, quotas and metrics read."""

    code: RequestCode
    # The role under which the request is counted, and which the server notes for its peer, unless the peer has a role
    # already that says more: a broker stays a broker when it sends GET_BROKER_CLUSTER_INFO, an "admin" request.
    sender: Sender
    access_class: AccessClass
    # the typed ext fields; None if the request has none
    header: type[ExtHeader] | None = None
    # the native body; None without a body, or if the handler decodes the body in steps or in several dialects
    body: type[RequestBody] | None = None
    # The rule fields that can narrow this request, since it contains the names. A rule that is narrowed by another
    # field does not grant the request.
    names: frozenset[str] = frozenset()
    # rule fields that are ignored for this request, although it does not contain the names
    exempt: frozenset[str] = frozenset()
    # True: the response may wait for an event, and does not hold up later requests of the connection
    may_wait: bool = False

    @property
    def is_extension(self) -> bool:
        """True for a request of this project and not of RocketMQ, which exists only in the native protocol."""
        return self.code >= FIRST_EXTENSION

    def values(self, command: RemotingCommand) -> tuple[ExtHeader | RequestBody, ...]:
        """The arguments of the handler: the typed header and the typed body, each only if this kind of request has it.

        Raises:
            BadRequestError: a field is missing, or a field or the body cannot be read.
            RequestCodeNotSupportedError: an extension request in a protocol other than the native one.
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
        # Topics and address of a broker are checked when it registers them, and not in these requests.
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
        # A 5.x broker sends this request every ten seconds, with a signature that cannot authorise admin requests.
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
        # SERVER_INFO is the first request of a native client.
        kind(code.SERVER_INFO, "admin", each.ANY_ACCOUNT),
        kind(code.RECENT_EVENTS, "admin", each.ADMIN_READ, body=RecentEventsRequest),
        kind(code.LIST_CONNECTIONS, "admin", each.ADMIN_READ, body=ListConnectionsRequest),
        kind(code.LIST_BROKERS, "admin", each.ADMIN_READ, body=ListBrokersRequest),
        kind(code.WHO_AM_I, "admin", each.ANY_ACCOUNT),
        kind(code.LIST_SETTINGS, "admin", each.ADMIN_READ),
        kind(code.LIST_KV_NAMESPACES, "admin", each.ADMIN_READ),
    )
    return {int(row.code): row for row in rows}


# request code -> kind of the request; requests with a code that is missing here are denied to every account
REQUESTS: Final[Mapping[int, RequestKind]] = _table()
