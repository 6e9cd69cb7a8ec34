"""Broker names and addresses that stay reserved for the account of their last occupant.

A broker has two places: its name, which is one group across clusters, and its address in its cluster. While a broker
reconnects, another account could take a place and keep it. So a place stays with its last account as if the broker were
still registered: another account needs rules that allow the former broker as well, or rules that name the place more
closely than the rules of the occupant, which counts as a squatter then.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.access import Account, Permission, Specificity
from namesrv_remoting.codes import RequestCode

# One hour is longer than a broker with a large disk takes to restart. An operator who assigns a place to another
# account changes the access file, which ends the reservation at once.
RESERVED_SECONDS: Final = 3600.0
# Names and addresses of ten thousand brokers, the default maximum of a server: about 6 MB for an account.
MAX_PLACES_PER_ACCOUNT: Final = 20_000


class Place(NamedTuple):
    """A name, or an address in a cluster, that only one broker can have; `cluster` is empty for a name."""

    kind: Literal["name", "address"]
    value: str
    cluster: str = ""


class Occupant(NamedTuple):
    """The current or last broker of a place, with its account."""

    key: BrokerAddrInfo
    broker_name: str
    account: str
    # None while the broker is registered.
    reserved_until: float | None = None


class Judgement(NamedTuple):
    """The effect of a registration on the occupants of its places."""

    # Squatting brokers, which the registration removes.
    displaced: tuple[Occupant, ...]
    # Brokers whose registration the account needs permission for as well.
    respected: tuple[Occupant, ...]


class Reservations:
    """The places of brokers that have left, by account; bounded in number and time."""

    def __init__(self) -> None:
        # Occupants by place, in the order in which the brokers left.
        self._occupants: dict[Place, Occupant] = {}
        # account -> its places, in the same order
        self._of_account: dict[str, dict[Place, None]] = {}

    def __repr__(self) -> str:
        return f"<Reservations [{len(self._occupants)} places | {len(self._of_account)} accounts]>"

    def broker_left(self, key: BrokerAddrInfo, live: BrokerLiveInfo, now: float) -> None:
        """Reserve the name and the address of a broker that an account had registered."""
        self._forget_expired(now)
        if not live.account:
            return
        occupant = Occupant(key, live.broker_name, live.account, now + RESERVED_SECONDS)
        for place in places_of(key, live.broker_name):
            self._forget(place)
            self._occupants[place] = occupant
            places = self._of_account.setdefault(live.account, {})
            places[place] = None
            if len(places) > MAX_PLACES_PER_ACCOUNT:
                self._forget(next(iter(places)))

    def last_occupant(self, place: Place, now: float) -> Occupant | None:
        """Return the last broker of a place; None if the reservation is over."""
        occupant = self._occupants.get(place)
        return occupant if occupant is not None and now < (occupant.reserved_until or 0) else None

    def current(self, now: float) -> list[tuple[Place, Occupant]]:
        """Return all reserved places with their occupants."""
        self._forget_expired(now)
        return list(self._occupants.items())

    def _forget_expired(self, now: float) -> None:
        while self._occupants:
            place, occupant = next(iter(self._occupants.items()))
            if now < (occupant.reserved_until or 0):
                return
            self._forget(place)

    def _forget(self, place: Place) -> None:
        occupant = self._occupants.pop(place, None)
        if occupant is not None:
            places = self._of_account[occupant.account]
            del places[place]
            if not places:
                del self._of_account[occupant.account]


def places_of(key: BrokerAddrInfo, broker_name: str) -> tuple[Place, Place]:
    """Return the two places of a broker."""
    return Place("name", broker_name), Place("address", key.broker_addr, key.cluster_name)


def judge(
    wanted: Permission, account: Account, accounts: Mapping[str, Account], occupants: Mapping[Place, list[Occupant]]
) -> Judgement:
    """Compare a registration with the brokers that hold its places."""
    displaced, respected = [], []
    for place, residents in occupants.items():
        for occupant in residents:
            if outranks(place, wanted, account, occupant, accounts.get(occupant.account)):
                displaced.append(occupant)
            elif occupant.reserved_until is None or _is_still_entitled(occupant, accounts.get(occupant.account)):
                respected.append(occupant)
    return Judgement(tuple(displaced), tuple(respected))


def outranks(
    place: Place, wanted: Permission, account: Account, occupant: Occupant, occupants_account: Account | None
) -> bool:
    """True if an account's rules name a place more closely than the rules of the occupant's account.

    In another cluster, the account needs a rule that lists the broker by its name, and the occupant's rules must name
    no broker: then each account has a cluster of its own, and only one of them owns the name.
    """
    if occupants_account is None or occupants_account.name == account.name:
        return False
    narrowed: Literal["brokers", "broker_addresses"] = "brokers" if place.kind == "name" else "broker_addresses"
    own = account.specificity(narrowed, wanted)
    others = occupants_account.specificity(narrowed, _registration_of(occupant))
    if occupant.key.cluster_name != wanted.cluster:
        return own is Specificity.NAMED and others is Specificity.UNNAMED
    return own > others


def occupants_of(
    tables: RouteTables, reservations: Reservations, key: BrokerAddrInfo, broker_name: str, now: float
) -> dict[Place, list[Occupant]]:
    """Return the registered brokers at the places of a broker; for a free place, its last occupant."""
    by_name, by_address = places_of(key, broker_name)
    at_address = tables.broker_live_table.get(key)
    by_place = {
        by_name: [Occupant(other, broker_name, live.account) for other, live in tables.brokers_named(broker_name)],
        by_address: [] if at_address is None else [Occupant(key, at_address.broker_name, at_address.account)],
    }
    for place, occupants in by_place.items():
        if not occupants and (last := reservations.last_occupant(place, now)) is not None:
            occupants.append(last)
    return by_place


def _is_still_entitled(occupant: Occupant, account: Account | None) -> bool:
    return account is not None and account.may_for_some_topic(_registration_of(occupant))


def _registration_of(occupant: Occupant) -> Permission:
    cluster, addr = occupant.key
    return Permission(RequestCode.REGISTER_BROKER, cluster, occupant.broker_name, None, addr)
