"""Access classes of request codes, and the grants and errors of access files."""

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.access import (
    GRANTABLE,
    Account,
    BrokerAddresses,
    Patterns,
    Permission,
    Rule,
    parse_access_file,
)
from namesrv_remoting.addresses import address_of
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.requests import REQUESTS, AccessClass
from namesrv_remoting.typed_toml import FileError

SECRET = "a-secret-of-the-test"
FILE = f"""
[accounts.reader]
secrets = ["{SECRET}"]
may = ["route-read"]

[accounts.orders-brokers]
access_key = "orders"
secrets = ["new-{SECRET}", "old-{SECRET}"]
certificates = ["broker-1.example.com"]
networks = ["10.1.0.0/16", "fd00::/8"]
expires = 2027-01-01T00:00:00
may = [
    "route-read",
    {{ access = "broker-control", clusters = ["prod"], brokers = ["orders-*"], topics = ["orders-*"] }},
]

[accounts.office]
networks = ["10.0.0.0/8"]
may = ["admin-read"]

[accounts.desk]
networks = ["10.2.3.4"]
may = ["admin-write"]
"""
REGISTER, HEARTBEAT, DELETE_TOPIC = 103, 904, 216
WIPE, PUT_KV, ROUTE, LIST_BROKERS = 205, 100, 105, 20005
OF_ADDRESSES = Rule(
    AccessClass.BROKER_CONTROL, broker_addresses=BrokerAddresses(("10.1.0.0/16", "fd00::/8", "b.example.com:10911"))
)
OF_TOPICS = Rule(AccessClass.BROKER_CONTROL, topics=Patterns(("t",)))


def test_every_code_has_a_class() -> None:
    """A code without a class would be denied."""
    assert {int(code) for code in RequestCode} == set(REQUESTS)


@pytest.mark.parametrize(
    ("rule", "needed", "granted"),
    [
        (Rule(AccessClass.ROUTE_READ), Permission(ROUTE, topic="t"), True),
        (Rule(AccessClass.ROUTE_READ), Permission(REGISTER, "c", "b", "t"), False),
        (Rule(AccessClass.ROUTE_READ, topics=Patterns(("orders-*", "x"))), Permission(ROUTE, topic="orders-1"), True),
        (Rule(AccessClass.ROUTE_READ, topics=Patterns(("orders-*", "x"))), Permission(ROUTE, topic="my-orders"), False),
        (Rule(AccessClass.ROUTE_READ, topics=Patterns(("orders-?",))), Permission(ROUTE, topic="orders-1\n"), False),
        (Rule(AccessClass.ROUTE_READ, topics=Patterns(("Orders",))), Permission(ROUTE, topic="orders"), False),
        # a broker's topics are those of its registration
        (Rule(AccessClass.BROKER_CONTROL, topics=Patterns(("t",))), Permission(HEARTBEAT, "c", "b"), True),
        (Rule(AccessClass.BROKER_CONTROL, topics=Patterns(("t",))), Permission(REGISTER, "c", "b"), False),
        (Rule(AccessClass.BROKER_CONTROL, brokers=Patterns(("b",))), Permission(HEARTBEAT, "c", "a"), False),
        # a broker chooses its name and cluster: only a rule that bounds both may grant topics by them
        (OF_TOPICS, Permission(REGISTER, "c", "b", "t"), True),
        (OF_TOPICS, Permission(REGISTER, "c", "b", "TBW102"), True),
        (OF_TOPICS, Permission(REGISTER, "c", "b", "rmq_sys_x"), True),
        (OF_TOPICS, Permission(REGISTER, "c", "b", "b"), False),
        (OF_TOPICS, Permission(REGISTER, "c", "b", "c"), False),
        (replace(OF_TOPICS, brokers=Patterns(("b",))), Permission(REGISTER, "c", "b", "b"), True),
        (replace(OF_TOPICS, brokers=Patterns(("b",))), Permission(REGISTER, "c", "b", "c"), False),
        (replace(OF_TOPICS, brokers=Patterns(("b",))), Permission(REGISTER, "c", "b", "c_REPLY_TOPIC"), False),
        (replace(OF_TOPICS, clusters=Patterns(("c",))), Permission(REGISTER, "c", "b", "b"), False),
        (replace(OF_TOPICS, clusters=Patterns(("c",))), Permission(REGISTER, "c", "b", "c"), True),
        (replace(OF_TOPICS, clusters=Patterns(("c",))), Permission(REGISTER, "c", "b", "c_REPLY_TOPIC"), True),
        # a broker registers addresses within the networks, with any port, or the one listed address with its port
        (OF_ADDRESSES, Permission(REGISTER, "c", "b", None, "10.1.2.3:10911"), True),
        (OF_ADDRESSES, Permission(HEARTBEAT, "c", "b", None, "[fd00::7]:1"), True),
        (OF_ADDRESSES, Permission(REGISTER, "c", "b", "t", "b.example.com:10911"), True),
        (OF_ADDRESSES, Permission(REGISTER, "c", "b", None, "b.example.com:10912"), False),
        (OF_ADDRESSES, Permission(REGISTER, "c", "b", None, "10.2.0.1:10911"), False),
        (OF_ADDRESSES, Permission(REGISTER, "c", "b", None, "10.1.2.3.example.com:1"), False),
        (OF_ADDRESSES, Permission(REGISTER, "c", "b"), False),
        # requests that name a broker group
        (OF_ADDRESSES, Permission(901, "c", "b"), True),
        # a request without the narrowed attribute is not granted
        (Rule(AccessClass.ADMIN_WRITE, topics=Patterns(("*",))), Permission(DELETE_TOPIC, topic="t"), True),
        (Rule(AccessClass.ADMIN_WRITE, topics=Patterns(("*",))), Permission(WIPE, broker="b"), False),
        (Rule(AccessClass.ADMIN_WRITE, topics=Patterns(("*",))), Permission(PUT_KV), False),
        (Rule(AccessClass.ADMIN_WRITE, clusters=Patterns(("*",))), Permission(DELETE_TOPIC, topic="t"), False),
        (Rule(AccessClass.ADMIN_WRITE, clusters=Patterns(("*",))), Permission(DELETE_TOPIC, "c", topic="t"), True),
        (Rule(AccessClass.ADMIN_READ, clusters=Patterns(("*",))), Permission(LIST_BROKERS, "c"), False),
        # codes without a class
        (Rule(AccessClass.ADMIN_WRITE), Permission(99999), False),
    ],
)
def test_rule_grants(rule: Rule, needed: Permission, *, granted: bool) -> None:
    """A rule grants requests of its class within all of its attributes."""
    assert granted is rule.grants(needed)


NAMES = st.sampled_from(["a", "b", "ab"])
PATTERNS = st.none() | st.lists(st.sampled_from(["a", "b", "a*", "*", "?"]), min_size=1).map(
    lambda texts: Patterns(tuple(texts))
)
ADDRESSES = st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "b:1"])
NETWORKS = st.none() | st.lists(st.sampled_from(["10.0.0.1", "10.0.0.0/24", "b:1"]), min_size=1).map(
    lambda texts: BrokerAddresses(tuple(texts))
)
RULES = st.builds(Rule, st.sampled_from(GRANTABLE), PATTERNS, PATTERNS, PATTERNS, NETWORKS)
PERMISSIONS = st.builds(
    Permission, st.sampled_from([*REQUESTS, 0, 99999]), *[st.none() | NAMES] * 3, st.none() | ADDRESSES
)


@given(st.lists(RULES, max_size=4), PERMISSIONS)
def test_rules_do_not_combine(rules: list[Rule], needed: Permission) -> None:
    """An account may do what one of its rules grants by itself, regardless of their order."""
    about = REQUESTS.get(needed.code)
    everybody = about is not None and about.access_class is AccessClass.ANY_ACCOUNT
    expected = everybody or any(Account("one", rules=(rule,)).may(needed) for rule in rules)

    assert {Account("all", rules=order).may(needed) for order in permutations(rules)} == {expected}


@given(st.lists(RULES, max_size=3), PERMISSIONS)
def test_whole_class_grants_every_request_in_it(rules: list[Rule], needed: Permission) -> None:
    """The fast path skips name checks only where the rules would grant every name."""
    account, about = Account("a", rules=tuple(rules)), REQUESTS.get(needed.code)
    if about is not None and account.may_anything_in(about.access_class):
        assert account.may(needed)


@given(st.permutations(FILE.split("\n\n")))
def test_order_of_accounts_does_not_matter(parts: list[str]) -> None:
    """A file with reordered accounts identifies the same accounts."""
    access = parse_access_file("\n\n".join(parts))

    assert parse_access_file(FILE).accounts == access.accounts
    assert _name(access.of_network(ip_address("10.2.3.4"))) == "desk"
    assert _name(access.of_network(ip_address("10.1.1.1"))) == "office"
    assert _name(access.of_network(ip_address("11.1.1.1"))) == ""
    assert _name(access.of_network(None)) == ""


def _name(account: Account | None) -> str:
    return "" if account is None else account.name


def test_accounts_have_keys_certificates_networks_and_expiry() -> None:
    """The access key is by default the account's name."""
    access = parse_access_file(FILE)
    brokers = access.accounts["orders-brokers"]

    assert access.by_key.keys() == {"reader", "orders"}
    assert (f"new-{SECRET}".encode(), f"old-{SECRET}".encode()) == access.secrets_of("orders")
    assert access.secrets_of("orders-brokers") == ()
    assert brokers is access.of_certificate(("x", "broker-1.example.com"))
    assert access.of_certificate(("broker-2.example.com",)) is None
    assert brokers.is_admitted_from(address_of("10.1.2.3"))
    assert brokers.is_admitted_from(address_of("[::ffff:10.1.2.3]"))
    assert not brokers.is_admitted_from(address_of("[::1]"))
    assert not brokers.is_admitted_from(address_of("?"))
    end = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    assert (brokers.is_expired(end - 1), brokers.is_expired(end)) == (False, True)
    assert brokers.classes == ["route-read", "broker-control"]


# the beginning of an account with a network
MAY = "[accounts.a]\nnetworks = ['::/0']\nmay = "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1\n[accounts]", "unknown field a"),
        ("[accounts.a]\nsecret = ['hush-hush']", "account a: unknown field secret (did you mean secrets?)"),
        ("", "object missing required field accounts"),
        ("[accounts", "not TOML: Expected ']' at the end of a table declaration (at end of document)"),
        ("[accounts.a]", "account a: object missing required field may"),
        ("[accounts.a]\nmay = []", "account a: needs secrets, certificates or networks"),
        ("[accounts.a]\nmay = []\naccess_key = 'k'", "account a: an access key needs secrets"),
        ("[accounts.a]\nmay = []\nsecrets = []", "account a: secrets: needs at least 1 value"),
        ("[accounts.a]\nmay = []\nsecrets = ['hush']", "account a: secrets[0]: needs at least 8 characters"),
        (
            "[accounts.a]\nmay = []\nsecrets = ['hush-hush', 'hush-hush-hush', 'hush-hush-hush-hush']",
            "account a: secrets: takes at most 2 values",
        ),
        ("[accounts.a]\nmay = []\nnetworks = ['10.0.0.1/8']", "account a: not a network: 10.0.0.1/8 has host bits set"),
        (MAY + "['root']", "account a: 'root' is not one of route-read, broker-co"),
        (MAY + "['any-account']", "account a: 'any-account' is not one of"),
        (MAY + "[{access = 'route-read', brokers = ['x']}]", "account a: route-read cannot be narrowed by brokers: "),
        (MAY + "[{access = 'route-read', topics = []}]", "account a: may[0].topics: needs at least 1 value"),
        (
            MAY + "[{access='broker-control', broker_addresses=['b:1', '10.0.0.1/8']}]",
            "account a: may[0].broker_addresses[1]: not a network or address: 10.0.0.1/8 has host bits set",
        ),
        (
            MAY + "[{access = 'broker-control', broker_addresses = ['broker-1']}]",
            "account a: may[0].broker_addresses[0]: not a network or address: 'broker-1' does not appear to be an IPv4",
        ),
        (
            MAY + "[{access = 'route-read', broker_addresses = ['::/0']}]",
            "account a: route-read cannot be narrowed by broker_addresses: no such request names any",
        ),
        (
            MAY + "['route-read', {access = 'admin-write', create_clusters = true}]",
            "account a: may[1].create_clusters: only registrations create clusters",
        ),
        (
            "[accounts.a]\nmay = []\nnetworks = ['::/0']\n[accounts.b]\nmay = []\nnetworks = ['::/0']",
            "account b: network ::/0 is also used by account a",
        ),
        (
            "[accounts.a]\nmay=[]\nsecrets=['hush-hush']\n[accounts.b]\nmay=[]\naccess_key='a'\nsecrets=['hush-hush']",
            "account b: access key a is also used by account a",
        ),
    ],
)
def test_errors_name_the_place_without_secrets(text: str, problem: str) -> None:
    """A message contains the place and the reason, and never a secret."""
    with pytest.raises(FileError) as caught:
        parse_access_file(text)

    assert problem in str(caught.value)
    assert "hush" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    """Accounts may appear in a traceback."""
    assert SECRET not in repr(parse_access_file(FILE))
