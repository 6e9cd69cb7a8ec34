"""The address views file: addresses of brokers as peers on other networks reach them.

A view names its peers, and the address that these peers get in place of the registered address of a broker. The daemon
maps its responses with the view of each peer, and `namesrvctl views` shows the mapping for a given peer.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from namesrv_remoting.access import BrokerAddresses, Network, Patterns, read_networks
from namesrv_remoting.addresses import address_of, is_endpoint
from namesrv_remoting.bodies.advertised import AdvertisedAddresses
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from namesrv_remoting.typed_toml import FileError, Word, Words, read_toml

MAX_VIEWS: Final = 64
# the name of the listener of the daemon's `listen-port`; the setting `listeners` names further listeners
DEFAULT_LISTENER: Final = "default"
_EXAMPLE: Final = "{host}:{port+20000}, {broker_name}-{broker_id}.mq.example.com:{port}, 203.0.113.7:30911"
# {host}, {port}, {port+20000}, {port-2}
_PLACEHOLDER: Final = re.compile(r"\{(host|port|cluster|broker_name|broker_id)([+-]\d{1,5})?\}")


class Viewer(NamedTuple):
    """The peer that gets a response: its address, account (empty without one), names in its certificate, listener."""

    ip: str
    account: str = ""
    certificate_names: Sequence[str] = ()
    listener: str = DEFAULT_LISTENER


class BrokerIdentity(NamedTuple):
    """The names of one registered broker."""

    cluster: str
    broker_name: str
    broker_id: int


# Returns the addresses that the broker with these names advertises, if the broker is registered at this address.
AdvertisedOf = Callable[[BrokerIdentity, str], AdvertisedAddresses]


@dataclass(slots=True, frozen=True)
class AddressRule:
    """A rule of a view: the addresses that some brokers get; a field that is None does not narrow the rule."""

    # the address in the view, with placeholders such as {host} and {port+20000}
    shown: str
    clusters: Patterns | None = None
    broker_names: Patterns | None = None
    broker_id: int | None = None
    registered: BrokerAddresses | None = None

    def matches(self, broker: BrokerIdentity, address: str) -> bool:
        """Whether the rule is about this address of this broker."""
        return (
            (self.clusters is None or self.clusters.match(broker.cluster))
            and (self.broker_names is None or self.broker_names.match(broker.broker_name))
            and (self.broker_id is None or self.broker_id == broker.broker_id)
            and (self.registered is None or self.registered.match(address))
        )

    def address(self, broker: BrokerIdentity, registered: str) -> str | None:
        """The address in place of a registered one; None if the result is not a host and port."""
        host, _, port = registered.rpartition(":")
        values = {"host": host, "port": port, **{name: str(value) for name, value in broker._asdict().items()}}
        try:
            shown = _PLACEHOLDER.sub(lambda placeholder: _filled(values[placeholder[1]], placeholder[2]), self.shown)
        except ValueError:
            return None
        return shown if is_endpoint(shown, least_port=1) else None


@dataclass(slots=True, frozen=True, eq=False)
class AddressView:
    """One view; it is compared by identity, since responses are cached for it until the file changes."""

    name: str
    rules: tuple[AddressRule, ...]
    # which peers the view is for; a field that is None does not narrow the view
    networks: tuple[Network, ...] | None = None
    accounts: Patterns | None = None
    certificates: Patterns | None = None
    listeners: Patterns | None = None
    # True if addresses without a rule, which the broker does not advertise for this view either, are left out of
    # responses; otherwise they are shown as registered
    hides_others: bool = False

    def is_for(self, viewer: Viewer) -> bool:
        """Whether a peer sees this view."""
        address = address_of(viewer.ip)
        return (
            (self.networks is None or (address is not None and any(address in network for network in self.networks)))
            and (self.accounts is None or self.accounts.match(viewer.account))
            and (self.certificates is None or any(map(self.certificates.match, viewer.certificate_names)))
            and (self.listeners is None or self.listeners.match(viewer.listener))
        )

    def address(self, broker: BrokerIdentity, registered: str, advertised: Mapping[str, str]) -> str | None:
        """The address of a broker in this view; None if the broker is left out.

        `advertised` are the addresses that the broker advertises, by view. The first rule that matches the broker wins
        over them, even if the result is None.
        """
        for rule in self.rules:
            if rule.matches(broker, registered):
                return rule.address(broker, registered)
        return advertised.get(self.name, None if self.hides_others else registered)

    def group(self, group: BrokerData, advertised_of: AdvertisedOf) -> BrokerData | None:
        """A broker group in this view; None if no broker of it is left."""
        shown = self._addresses(group, advertised_of)
        addrs = {broker_id: addr for broker_id, addr in shown.items() if addr is not None}
        return msgspec.structs.replace(group, broker_addrs=addrs) if addrs else None

    def route(self, route: TopicRouteData, advertised_of: AdvertisedOf) -> TopicRouteData | None:
        """A route in this view; None if no broker of it is left."""
        groups = [shown for group in route.broker_datas if (shown := self.group(group, advertised_of)) is not None]
        if not groups:
            return None
        names = {group.broker_name for group in groups}
        return msgspec.structs.replace(
            route,
            broker_datas=groups,
            queue_datas=[queues for queues in route.queue_datas if queues.broker_name in names],
            filter_server_table=self._filter_servers(route, advertised_of),
        )

    def clusters(self, info: ClusterInfo, advertised_of: AdvertisedOf) -> ClusterInfo:
        """All clusters in this view."""
        groups = {
            name: shown
            for name, group in info.broker_addr_table.items()
            if (shown := self.group(group, advertised_of)) is not None
        }
        names = {
            cluster: [name for name in names if name in groups] for cluster, names in info.cluster_addr_table.items()
        }
        return ClusterInfo(groups, {cluster: kept for cluster, kept in names.items() if kept})

    def _addresses(self, group: BrokerData, advertised_of: AdvertisedOf) -> dict[int, str | None]:
        """The addresses of a group's brokers by id; None for a broker that is left out."""
        shown = {}
        for broker_id, addr in group.broker_addrs.items():
            broker = BrokerIdentity(group.cluster, group.broker_name, broker_id)
            shown[broker_id] = self.address(broker, addr, advertised_of(broker, addr).broker_addr)
        return shown

    def _filter_servers(self, route: TopicRouteData, advertised_of: AdvertisedOf) -> Mapping[str, Sequence[str]]:
        """The filter servers by the broker's address in this view; their own addresses stay as registered."""
        servers = route.filter_server_table
        if not servers:
            return {}
        by_shown = {}
        for group in route.broker_datas:
            for broker_id, shown in self._addresses(group, advertised_of).items():
                addr = group.broker_addrs[broker_id]
                if shown is not None and addr in servers:
                    by_shown[shown] = servers[addr]
        return by_shown


@dataclass(frozen=True, slots=True)
class AddressViews:
    """All views of a file; a peer gets the first view that is for it. Views of files with the same text are equal."""

    text: str = ""
    views: tuple[AddressView, ...] = field(default=(), compare=False)

    @property
    def need_accounts(self) -> bool:
        """Whether the view of a connection depends on the account of a request."""
        return any(view.accounts is not None for view in self.views)

    def view_of(self, viewer: Viewer) -> AddressView | None:
        """The view of a peer; None if the peer gets addresses as they are registered."""
        return next((view for view in self.views if view.is_for(viewer)), None)


def _filled(value: str, offset: str | None) -> str:
    """The value of a placeholder. Raises ValueError if an offset has no number to be added to."""
    return value if offset is None else str(int(value) + int(offset))


# -- the file ---------------------------------------------------------------------------------------------------------


class _FileRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    shown: Word
    clusters: Words | None = None
    broker_names: Words | None = None
    broker_id: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    registered: Words | None = None


class _FileView(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: Word
    brokers: Annotated[list[_FileRule], msgspec.Meta(max_length=10_000)] = []
    networks: Words | None = None
    accounts: Words | None = None
    certificates: Words | None = None
    listeners: Words | None = None
    others: Literal["show", "hide"] = "show"


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    views: Annotated[list[_FileView], msgspec.Meta(max_length=MAX_VIEWS)] = []


def parse_address_views(text: str) -> AddressViews:
    """Parse the text of an address views file. Raises FileError with all problems."""
    written = read_toml(text, _File)
    problems: list[str] = []
    views = tuple(_view(view, problems) for view in written.views)
    names = [view.name for view in views]
    problems += (f"view {name}: the name is used twice" for name in sorted({*names}) if names.count(name) > 1)
    if problems:
        raise FileError(problems)
    return AddressViews(text, views)


def _view(written: _FileView, problems: list[str]) -> AddressView:
    where = f"view {written.name}"
    return AddressView(
        name=written.name,
        rules=tuple(_rules(where, written.brokers, problems)),
        networks=None if written.networks is None else tuple(read_networks(where, written.networks, problems)),
        accounts=_patterns(written.accounts),
        certificates=_patterns(written.certificates),
        listeners=_patterns(written.listeners),
        hides_others=written.others == "hide",
    )


def _rules(where: str, written: Iterable[_FileRule], problems: list[str]) -> Iterator[AddressRule]:
    for number, rule in enumerate(written):
        place = f"{where}: brokers[{number}]"
        try:
            registered = None if rule.registered is None else BrokerAddresses(tuple(rule.registered))
        except ValueError as error:
            examples = "10.1.0.0/16, 10.1.2.3, 10.1.2.3:10911"
            problems.append(f"{place}.registered: not a network or address: {error} (for example {examples})")
            continue
        parsed = AddressRule(
            rule.shown, _patterns(rule.clusters), _patterns(rule.broker_names), rule.broker_id, registered
        )
        if parsed.address(BrokerIdentity("cluster", "broker", 0), "192.0.2.1:10911") is None:
            problems.append(f"{place}.shown: {rule.shown!r} is not a host and port (for example {_EXAMPLE})")
        yield parsed


def _patterns(texts: Sequence[str] | None) -> Patterns | None:
    return None if texts is None else Patterns(tuple(texts))
