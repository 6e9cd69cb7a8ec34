"""The access file: accounts, and the rules that grant requests to them.

This module is independent of connections: the daemon checks each request with it, and `namesrvctl access` checks
hypothetical requests. A request is denied unless a single rule grants it completely: rules are never combined, so their
order has no meaning.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from fnmatch import translate
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from namesrv_remoting.addresses import Address, address_of
from namesrv_remoting.codes import AUTO_CREATE_TOPIC, RequestCode
from namesrv_remoting.requests import REQUESTS, AccessClass
from namesrv_remoting.signatures import MAX_SECRETS
from namesrv_remoting.typed_toml import FileError, Word, Words, read_table, read_toml

Network = IPv4Network | IPv6Network

# Shorter secrets can be guessed. RocketMQ's own limit is 6, and the shortest secrets in its documentation have 8.
MIN_SECRET_CHARACTERS: Final = 8


# access classes that a rule may name
GRANTABLE: Final = tuple(each for each in AccessClass if each is not AccessClass.ANY_ACCOUNT)
# A RocketMQ signature authorises only these access classes, since it covers neither the request code nor the time, so
# that a copy of it is valid for ever.
ROCKETMQ_CLASSES: Final = frozenset({AccessClass.ROUTE_READ, AccessClass.BROKER_CONTROL, AccessClass.ANY_ACCOUNT})

# Topics that every broker registers for itself (TopicValidator.java), in addition to those named after the broker and
# its cluster.
_SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        "AUTO_CREATE_TOPIC_KEY",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "DefaultHeartBeatSyncerTopic",
        "CHECKPOINT_TOPIC",
    }
)
_SYSTEM_PREFIX: Final = "rmq_sys_"


def is_system_topic(topic: str) -> bool:
    """Whether a topic is one of RocketMQ's own, independent of the names of brokers and clusters."""
    return topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)


class Permission(NamedTuple):
    """A permission that a request needs: its code, and the names in it. A request may need several permissions."""

    code: int
    cluster: str | None = None
    broker: str | None = None
    topic: str | None = None
    # the broker address to which clients connect
    address: str | None = None


class Specificity(IntEnum):
    """How specifically a rule names a broker or an address."""

    UNNAMED = 0
    PATTERN = 1
    NAMED = 2


@dataclass(slots=True, frozen=True)
class Patterns:
    """Case-sensitive patterns: `*` matches any characters, `?` one character, `[ab]` one of the listed characters."""

    texts: tuple[str, ...]
    _matcher: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compile all patterns into one regular expression."""
        object.__setattr__(self, "_matcher", re.compile("|".join(map(translate, self.texts)) or r"(?!)"))

    def match(self, name: str) -> bool:
        """Whether a pattern matches the whole name."""
        return self._matcher.match(name) is not None

    def specificity(self, name: str) -> Specificity:
        """How specifically the patterns name a name that they match; `*` is not specific at all."""
        if name in self.texts:
            return Specificity.NAMED
        return Specificity.UNNAMED if "*" in self.texts else Specificity.PATTERN


@dataclass(slots=True, frozen=True)
class BrokerAddresses:
    """Addresses that a broker may register: networks with any port, or single addresses with a port."""

    texts: tuple[str, ...]
    _networks: tuple[Network, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Separate networks from addresses with a port. Raises ValueError for a text that is neither."""
        networks = (_network_in(text) for text in self.texts)
        object.__setattr__(self, "_networks", tuple(network for network in networks if network is not None))

    def match(self, broker_addr: str) -> bool:
        """Whether a broker may register this address."""
        return broker_addr in self.texts or self._smallest_network(broker_addr) is not None

    def specificity(self, broker_addr: str) -> Specificity:
        """How specifically the texts name an address that they match: as a single address, or by a network."""
        network = self._smallest_network(broker_addr)
        if broker_addr in self.texts or (network is not None and network.num_addresses == 1):
            return Specificity.NAMED
        return Specificity.UNNAMED if network is None or network.prefixlen == 0 else Specificity.PATTERN

    def _smallest_network(self, broker_addr: str) -> Network | None:
        address = _host_of(broker_addr)
        around = (network for network in self._networks if address is not None and address in network)
        return max(around, key=lambda network: network.prefixlen, default=None)


_ADDRESS_WITH_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/\s]+):\d{1,5}")


def _network_in(text: str) -> Network | None:
    """The network in a text; None if the text is an address with a port. Raises ValueError for other texts."""
    if _ADDRESS_WITH_PORT.fullmatch(text):
        return None
    return ip_network(text)


@lru_cache(maxsize=4096)
def _host_of(broker_addr: str) -> Address | None:
    """The IP address in a broker's address, or None; cached, since every topic of a registration calls this."""
    host, _, _ = broker_addr.rpartition(":")
    return address_of(host)


# field of a rule that narrows it -> field of Permission
_NAMED: Final = {"clusters": "cluster", "brokers": "broker", "topics": "topic", "broker_addresses": "address"}


def named_in(needed: Permission) -> dict[str, str | None]:
    """The names in a permission, by the rule fields that narrow them: `clusters`, for example."""
    return {name: getattr(needed, field) for name, field in _NAMED.items()}


@dataclass(slots=True, frozen=True)
class Rule:
    """A rule, which grants an access class to an account; a field that is None does not narrow the rule."""

    access_class: AccessClass
    clusters: Patterns | None = None
    brokers: Patterns | None = None
    topics: Patterns | None = None
    broker_addresses: BrokerAddresses | None = None
    # True if a granted broker may be the first one of a cluster; None: see `may_create`
    create_clusters: bool | None = None
    # the fields that narrow this rule, without those that are None
    narrowed: Mapping[str, Patterns | BrokerAddresses] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute `narrowed` once, since every topic of a registration uses it."""
        every = {name: getattr(self, name) for name in _NAMED}
        object.__setattr__(self, "narrowed", {name: value for name, value in every.items() if value is not None})

    def __str__(self) -> str:
        narrowed = (f"{name} {', '.join(patterns.texts)}" for name, patterns in self.narrowed.items())
        creates = () if self.create_clusters is None else (f"create_clusters {str(self.create_clusters).lower()}",)
        return "; ".join([self.access_class, *narrowed, *creates])

    def mismatches(self, needed: Permission) -> Iterator[str]:
        """The narrowing fields (`clusters`, for example) that a request of this rule's class does not match."""
        about = REQUESTS[needed.code]
        for name, patterns in self.narrowed.items():
            if name in about.exempt:
                continue
            value = getattr(needed, _NAMED[name]) if name in about.names else None
            is_fit = value is not None and patterns.match(value)
            if not (is_fit or (name == "topics" and self._is_own_topic(needed))):
                yield name

    def is_about(self, needed: Permission) -> bool:
        """Whether the request belongs to this rule's access class."""
        about = REQUESTS.get(needed.code)
        return about is not None and about.access_class is self.access_class

    def grants(self, needed: Permission) -> bool:
        """Whether this rule alone grants the request."""
        return self.is_about(needed) and next(self.mismatches(needed), None) is None

    def grants_some_topic(self, needed: Permission) -> bool:
        """Whether this rule grants the request for some topic; the topics in the body are checked later."""
        return self.is_about(needed) and all(name == "topics" for name in self.mismatches(needed))

    def may_create(self, cluster: str, *, is_elsewhere: bool) -> bool:
        """Whether a broker that this rule grants may create a cluster, as the first broker in it.

        `is_elsewhere` means that the account has brokers in another cluster. By default, a rule that is not narrowed
        may create any cluster, a rule that lists the cluster by its name may create that cluster, and any other rule
        may create a single cluster, which then holds all brokers of the account.
        """
        if self.create_clusters is not None:
            return self.create_clusters
        is_listed = self.clusters is not None and cluster in self.clusters.texts
        return not self.narrowed or is_listed or not is_elsewhere

    def _is_own_topic(self, needed: Permission) -> bool:
        """Whether every broker registers the topic for itself, such as a system topic or the topic of its own name.

        A broker chooses its own name and cluster. The topics of these names count only if this rule narrows brokers or
        clusters: otherwise a broker could register any topic by taking the topic's name.
        """
        topic, cluster = needed.topic, needed.cluster
        if needed.code != RequestCode.REGISTER_BROKER or topic is None:
            return False
        return (
            is_system_topic(topic)
            or (self.brokers is not None and topic == needed.broker)
            or (self.clusters is not None and topic in {cluster, f"{cluster}_REPLY_TOPIC"})
        )


@dataclass(slots=True, frozen=True)
class Account:
    """An account with its rules; requests belong to it by access key, by certificate, or by the peer's network."""

    name: str
    access_key: str | None = None
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    certificates: tuple[str, ...] = ()
    # Networks from which the account may be used; empty for all. Without key and certificates, all peers in these
    # networks are this account.
    networks: tuple[Network, ...] = ()
    expires: datetime | None = None
    # True if a RocketMQ signature authorises everything that the rules grant
    trusts_rocketmq_signatures: bool = False
    rules: tuple[Rule, ...] = ()

    def is_admitted_from(self, address: Address | None) -> bool:
        """Whether the account may be used from this address."""
        return not self.networks or (address is not None and any(address in network for network in self.networks))

    def is_expired(self, now: float) -> bool:
        """Whether the account has expired, by the wall clock."""
        return self.expires is not None and now >= self.expires.timestamp()

    def may(self, needed: Permission) -> bool:
        """Whether the request is granted."""
        about = REQUESTS.get(needed.code)
        if about is not None and about.access_class is AccessClass.ANY_ACCOUNT:
            return True
        return any(rule.grants(needed) for rule in self.rules)

    def may_for_some_topic(self, needed: Permission) -> bool:
        """Whether the request is granted for some topic."""
        return any(rule.grants_some_topic(needed) for rule in self.rules)

    def may_anything_in(self, access_class: AccessClass) -> bool:
        """Whether a rule grants the class without narrowing; the creation of clusters is checked separately."""
        if access_class is AccessClass.ANY_ACCOUNT:
            return True
        return any(rule.access_class is access_class and not rule.narrowed for rule in self.rules)

    def may_create_cluster(self, needed: Permission, *, is_elsewhere: bool) -> bool:
        """Whether a broker that the account may register may create its cluster; see `Rule.may_create`."""
        rules = (rule for rule in self.rules if rule.grants_some_topic(needed))
        return any(rule.may_create(needed.cluster or "", is_elsewhere=is_elsewhere) for rule in rules)

    def specificity(self, name: Literal["brokers", "broker_addresses"], needed: Permission) -> Specificity:
        """How specifically the rules that grant a registration name its broker, or its address."""
        value = getattr(needed, _NAMED[name])
        named = (getattr(rule, name) for rule in self.rules if rule.grants_some_topic(needed))
        return max((each.specificity(value) for each in named if each is not None), default=Specificity.UNNAMED)

    @property
    def classes(self) -> list[str]:
        """The access classes of the account's rules."""
        return [each for each in GRANTABLE if any(rule.access_class is each for rule in self.rules)]


@dataclass(frozen=True)
class AccessFile:
    """All accounts, and the lookups by access key, certificate and network."""

    accounts: Mapping[str, Account]
    # True if a request with an unknown access key counts as unsigned; otherwise it counts as forged
    ignores_unknown_keys: bool = False

    @cached_property
    def by_key(self) -> Mapping[str, Account]:
        """Access key -> account."""
        return {each.access_key: each for each in self.accounts.values() if each.access_key is not None}

    @cached_property
    def _by_certificate(self) -> Mapping[str, Account]:
        return {name: each for each in self.accounts.values() for name in each.certificates}

    @cached_property
    def _by_network(self) -> Sequence[tuple[Network, Account]]:
        """Networks of accounts without credentials, the smallest first."""
        networks = [
            (network, each)
            for each in self.accounts.values()
            if each.access_key is None and not each.certificates
            for network in each.networks
        ]
        return sorted(networks, key=lambda item: -item[0].prefixlen)

    def secrets_of(self, access_key: str) -> Sequence[bytes]:
        """The secrets of an access key; empty for an unknown key."""
        account = self.by_key.get(access_key)
        return () if account is None else account.secrets

    def of_peer(self, certificate_names: Iterable[str], address: Address | None) -> Account | None:
        """The account of a peer's unsigned requests, by its certificate or else by its address; None if unknown."""
        return self.of_certificate(certificate_names) or self.of_network(address)

    def of_certificate(self, names: Iterable[str]) -> Account | None:
        """The account of a certificate with these names; None if unknown, or if they belong to several accounts."""
        accounts = {each.name: each for name in names if (each := self._by_certificate.get(name)) is not None}
        return next(iter(accounts.values())) if len(accounts) == 1 else None

    def of_network(self, address: Address | None) -> Account | None:
        """The account of all peers at this address, which is that of the smallest network around it; or None."""
        if address is None:
            return None
        return next((account for network, account in self._by_network if address in network), None)


# -- the file ---------------------------------------------------------------------------------------------------------


_Secret = Annotated[str, msgspec.Meta(min_length=MIN_SECRET_CHARACTERS, max_length=255)]


class _FileRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    access: str
    clusters: Words | None = None
    brokers: Words | None = None
    topics: Words | None = None
    broker_addresses: Words | None = None
    create_clusters: bool | None = None


class _FileAccount(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    may: list[str | _FileRule]
    access_key: Word | None = None
    secrets: Annotated[list[_Secret], msgspec.Meta(min_length=1, max_length=MAX_SECRETS)] | None = None
    certificates: Words | None = None
    networks: Words | None = None
    expires: datetime | None = None
    trust_rocketmq_signatures: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    accounts: dict[Word, dict[str, Any]]
    unknown_access_keys: Literal["refuse", "ignore"] = "refuse"


def parse_access_file(text: str) -> AccessFile:
    """Parse the text of an access file. Raises FileError with all problems."""
    written = read_toml(text, _File)
    problems: list[str] = []
    accounts = {name: _account(name, fields, problems) for name, fields in written.accounts.items()}
    problems += _shared(accounts.values())
    if problems:
        raise FileError(problems)
    return AccessFile(accounts, written.unknown_access_keys == "ignore")


def _account(name: str, fields: Mapping[str, Any], problems: list[str]) -> Account:
    where = f"account {name}"
    try:
        written = read_table(fields, _FileAccount)
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return Account(name)
    if written.access_key is not None and written.secrets is None:
        problems.append(f"{where}: an access key needs secrets")
    if written.secrets is None and not written.certificates and not written.networks:
        problems.append(f"{where}: needs secrets, certificates or networks to identify its peers")
    expires = written.expires
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return Account(
        name=name,
        # The access key defaults to the account's name.
        access_key=written.access_key or (name if written.secrets else None),
        secrets=tuple(secret.encode() for secret in written.secrets or ()),
        certificates=tuple(written.certificates or ()),
        networks=tuple(read_networks(where, written.networks or (), problems)),
        expires=expires,
        trusts_rocketmq_signatures=written.trust_rocketmq_signatures,
        rules=tuple(_rules(where, written.may, problems)),
    )


def read_networks(where: str, texts: Iterable[str], problems: list[str]) -> Iterable[Network]:
    """The networks in a list of a file; a text that is not a network is added to the problems."""
    for text in texts:
        try:
            yield ip_network(text)
        except ValueError as error:
            problems.append(f"{where}: not a network: {error} (for example 10.1.0.0/16, fd00::/8, 10.1.2.3)")


def _rules(where: str, written: Iterable[str | _FileRule], problems: list[str]) -> Iterable[Rule]:
    for number, each in enumerate(written):
        rule = _FileRule(access=each) if isinstance(each, str) else each
        if rule.access not in GRANTABLE:
            problems.append(f"{where}: {rule.access!r} is not one of {', '.join(GRANTABLE)}")
            continue
        access_class = AccessClass(rule.access)
        codes = [about for about in REQUESTS.values() if about.access_class is access_class]
        narrowed = {name: tuple(values) for name in _NAMED if (values := getattr(rule, name)) is not None}
        problems += (
            f"{where}: {access_class} cannot be narrowed by {name}: no such request names any"
            for name in narrowed
            if not any(name in about.names for about in codes)
        )
        if rule.create_clusters is not None and access_class is not AccessClass.BROKER_CONTROL:
            problems.append(f"{where}: may[{number}].create_clusters: only registrations create clusters")
        texts = narrowed.pop("broker_addresses", None)
        addresses = None if texts is None else _broker_addresses(f"{where}: may[{number}]", texts, problems)
        yield Rule(
            access_class,
            **{name: Patterns(values) for name, values in narrowed.items()},
            broker_addresses=addresses,
            create_clusters=rule.create_clusters,
        )


def _broker_addresses(where: str, texts: Sequence[str], problems: list[str]) -> BrokerAddresses:
    usable = []
    for number, text in enumerate(texts):
        try:
            _network_in(text)
        except ValueError as error:
            examples = "10.1.0.0/16, 10.1.2.3, 10.1.2.3:10911"
            problems.append(
                f"{where}.broker_addresses[{number}]: not a network or address: {error} (for example {examples})"
            )
        else:
            usable.append(text)
    return BrokerAddresses(tuple(usable))


def _shared(accounts: Iterable[Account]) -> Iterable[str]:
    """The problems of keys, certificates and networks that several accounts share, and so identify no account."""
    owners: dict[tuple[str, str], str] = {}
    for account in accounts:
        marks = [("access key", account.access_key)] if account.access_key is not None else []
        marks += [("certificate", name) for name in account.certificates]
        if not marks:
            marks += [("network", str(network)) for network in account.networks]
        for mark in dict.fromkeys(marks):
            owner = owners.setdefault(mark, account.name)
            if owner != account.name:
                yield f"account {account.name}: {mark[0]} {mark[1]} is also used by account {owner}"
