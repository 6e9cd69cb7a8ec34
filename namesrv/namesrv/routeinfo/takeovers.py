"""Takeovers: requests that take a live broker's place, or remove the broker.

Any peer may register under any broker's name and address, and the newest registration counts, as in Java: a broker that
restarts elsewhere takes its place at once. Three rules protect a live broker from a takeover:

- Its state version, if its group elects a master: a broker of an earlier term, with a lower state version, is refused
  (`check_state_version`).
- The takeover policy (`warn` or `refuse`), if the broker was lately seen over an open connection that is or was its
  own.
- Its access rules: a broker that the guard found in a place reserved for another account, a squatter, is removed.
"""

from collections.abc import Iterator

from namesrv.routeinfo.rules import Rules
from namesrv.routeinfo.tables.connections import MAX_OTHER_CONNECTIONS
from namesrv.routeinfo.tables.effects import TakeoverAttempted
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, Registration
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv_remoting.errors import NoPermissionError


def takeover_by(tables: RouteTables, registration: Registration, rules: Rules) -> TakeoverAttempted | None:
    """Return the takeover that a registration attempts; a move over the broker's own connection is allowed.

    The same broker may register over further connections as well, as after a reconnect, unless one more connection
    would push an earlier one out of the remembered ones.
    """
    if rules.policy.takeover == "allow":
        return None
    key, on = registration.key, registration.connection_id
    former = [
        (other, live)
        for other, live in places_taken(tables, registration)
        if is_in_use(tables, other, live, on, rules) and not squats(other, live, registration)
    ]
    live = tables.broker_live_table.get(key)
    if live is not None and _is_crowded(tables, key, live, on, rules) and not squats(key, live, registration):
        former.append((key, live))
    return attempted_takeover(*former[0], registration.key, registration.broker_name, on, rules) if former else None


def attempted_takeover(  # noqa: PLR0913, PLR0917 - the broker, and the request that would take its place
    key: BrokerAddrInfo, live: BrokerLiveInfo, by: BrokerAddrInfo, broker_name: str, on: int, rules: Rules
) -> TakeoverAttempted:
    """Return the attempt to take a live broker's place, or to remove the broker, over a connection."""
    age, is_refused = rules.now() - live.last_update, rules.policy.takeover == "refuse"
    return TakeoverAttempted(key, live, broker_name, by.broker_addr, on, age, is_refused)


def takeover_refusal(takeover: TakeoverAttempted, what: str) -> NoPermissionError:
    """Return the error for a refused takeover; `what` is the act that was refused."""
    holder = takeover.live
    return NoPermissionError(
        f"broker {holder.broker_name} with id {holder.broker_id} at {takeover.key.broker_addr} is alive, "
        f"last seen {takeover.age_seconds:.0f} s ago; this connection may not {what}"
    )


def squats(key: BrokerAddrInfo, live: BrokerLiveInfo, registration: Registration) -> bool:
    """True if a broker is in another broker's place, and still registered by the account that the guard found there."""
    return registration.displaces.get(key) == live.account and bool(live.account)


def is_in_use(tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo, on: int, rules: Rules) -> bool:
    """True if the broker was lately seen over an open connection, other than `on`, that is or was the broker's own.

    Any peer may register under the broker's name and address, which moves the broker to the newer connection; the
    former connection continues to count.
    """
    now = rules.now()
    if live.connection_id != on and rules.is_connected(live.connection_id) and not live.is_suspect(now):
        return True
    return any(number != on for number in _former_connections(tables, key, live, now, rules))


def _is_crowded(tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo, on: int, rules: Rules) -> bool:
    """True if one more connection would push an earlier connection of the broker out of the remembered ones."""
    if on == live.connection_id or on in tables.connections.others_of(key):
        return False
    return len(_former_connections(tables, key, live, rules.now(), rules)) >= MAX_OTHER_CONNECTIONS


def _former_connections(
    tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo, now: float, rules: Rules
) -> list[int]:
    """Return open connections other than the broker's own over which the broker registered and was lately seen."""
    return [
        number
        for number, other in tables.connections.others_of(key).items()
        if other.registered and not live.is_suspect(now, other.last_seen) and rules.is_connected(number)
    ]


def superseded_entries(
    tables: RouteTables, name: str, key: BrokerAddrInfo, holder: str | None
) -> Iterator[BrokerAddrInfo]:
    """Yield the live entries that end when the broker `key` registers under this name.

    These are the former holder of the broker id, at address `holder`, and the broker's own address under another
    cluster: a name is global.
    """
    for other, _ in tables.brokers_named(name):
        if other != key and other.broker_addr in (key.broker_addr, holder):
            yield other


def places_taken(tables: RouteTables, registration: Registration) -> Iterator[tuple[BrokerAddrInfo, BrokerLiveInfo]]:
    """Yield the live brokers whose places a registration would take.

    These are the holder of the broker id, and the broker at the same address if its name, id, cluster or expiry
    differs: a broker that changes its id frees the old one at once, and a forged expiry of one second would soon free
    the place.
    """
    key, name, wanted = registration.key, registration.broker_name, registration.broker_id
    live = tables.broker_live_table.get(key)
    if live is not None and (
        (live.broker_name, live.broker_id) != (name, wanted) or registration.expiry_seconds != live.expiry_seconds
    ):
        yield key, live
    for other in superseded_entries(tables, name, key, tables.addrs_of(name).get(wanted)):
        yield other, tables.broker_live_table[other]


def replaced_by(tables: RouteTables, registration: Registration) -> dict[BrokerAddrInfo, BrokerLiveInfo]:
    """Return the live brokers that a registration replaces, with the broker's own live entry."""
    live = tables.broker_live_table.get(registration.key)
    return dict(places_taken(tables, registration)) | ({} if live is None else {registration.key: live})
