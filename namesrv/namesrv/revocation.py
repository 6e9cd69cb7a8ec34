"""Revocation of live brokers whose account may no longer register them after a reload of the access file."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from namesrv.context import Namesrv
from namesrv.net.protocol import ServerConnection
from namesrv.routeinfo.acting_master import makes_routes
from namesrv.routeinfo.tables.effects import Audited, BrokerEffect, address_fields
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.route_tables import RouteTables
from namesrv.yielding import in_chunks
from namesrv_remoting.access import AccessFile, Account, Permission
from namesrv_remoting.addresses import address_of
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.requests import AccessClass
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)
# Brokers checked between two yields to the event loop, and topics of one broker.
_BROKERS_AT_ONCE: Final = 100
_TOPICS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Revoked(BrokerEffect):
    """A live broker whose registration the access file no longer allows."""

    key: BrokerAddrInfo
    live: BrokerLiveInfo
    reason: str

    audited: ClassVar[Audited] = "change"

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the revoked registration with the reason."""
        about = {"what": "registration", **address_fields(self.key), "broker_name": self.live.broker_name}
        verdict = {"account": self.live.account, "before": "allowed", "after": "revoked", "reason": self.reason}
        yield {**about, **verdict}


async def revoke_registrations(namesrv: Namesrv, file: AccessFile, only: BrokerAddrInfo | None = None) -> list[Revoked]:
    """Remove all brokers, or `only` one, that the file no longer allows, and close their connections.

    Returns the removed brokers. The next boot does not expect them back, and the audit trail names them.
    """
    revoked, tables, connections = list[Revoked](), namesrv.manager.tables, namesrv.slots.connections
    now = namesrv.clock.wall()
    brokers = [(key, live) for key, live in tables.broker_live_table.items() if only is None or key == only]
    async for part in in_chunks(brokers, _BROKERS_AT_ONCE):
        for key, live in part:
            connection = connections.get(live.connection_id)
            reason = _why_revoked(file, key, live, connection, now) or await _refused_topic(file, tables, key, live)
            if reason is not None:
                revoked.append(Revoked(key, live, reason))
    for each in revoked:
        event(
            logger,
            logging.WARNING,
            "registration_revoked",
            cluster=each.key.cluster_name,
            broker_name=each.live.broker_name,
            broker_addr=each.key.broker_addr,
            account=each.live.account,
            reason=each.reason,
        )
        for number in _connections_of(tables, each.key):
            if (connection := connections.get(number)) is not None:
                connection.close()
    # The end of a connection removes its brokers later, or not at all if `evict_on_disconnect` is off.
    await namesrv.manager.revoke((each.key, each.live) for each in revoked)
    for each in revoked:
        namesrv.boot.expected_back.forget(each.key, each.live)
    if revoked and namesrv.access.audit is not None:
        namesrv.access.audit.registrations_revoked(revoked)
    return revoked


def _why_revoked(
    file: AccessFile, key: BrokerAddrInfo, live: BrokerLiveInfo, connection: ServerConnection | None, now: float
) -> str | None:
    """Return why the account may not register this broker with any topics; None if it may."""
    account = file.accounts.get(live.account)
    if account is None:
        return f"account {live.account} is not in the access file" if live.account else "registered without an account"
    if connection is not None and (reason := _why_not_of(file, account, connection)) is not None:
        return reason
    if account.is_expired(now):
        return f"account {account.name} expired at {account.expires}"
    needed = _registration(key, live, None)
    if not account.may_for_some_topic(needed):
        return f"account {account.name} lacks {AccessClass.BROKER_CONTROL} for broker {live.broker_name}"
    for address in live.advertised.addresses:
        if not account.may_for_some_topic(needed._replace(address=address)):
            return f"account {account.name} lacks {AccessClass.BROKER_CONTROL} for advertised address {address}"
    return None


def _why_not_of(file: AccessFile, account: Account, connection: ServerConnection) -> str | None:
    """Return why a connection may not register brokers for this account any more; None if it may."""
    peer, address = connection.peer, address_of(connection.peer.ip)
    if not account.is_admitted_from(address):
        return f"account {account.name} may not be used from {peer.ip}"
    # An account with a key may have signed the registration, over a connection of any other account.
    if account.access_key is None and file.of_peer(connection.certificate_names, address) is not account:
        return f"no certificate or network of {peer.address} belongs to account {account.name}"
    return None


async def _refused_topic(
    file: AccessFile, tables: RouteTables, key: BrokerAddrInfo, live: BrokerLiveInfo
) -> str | None:
    """Return why the account may not register one of the broker's topics; None if it may register all."""
    account = file.accounts[live.account]
    if account.may(_registration(key, live, None)):
        # No rule of the account names topics.
        return None
    # A live entry does not tell whether its broker sent the flag: the topics of a prime slave count as its own.
    if not makes_routes(live.broker_id, tables.addrs_of(live.broker_name), enable_acting_master=True):
        # The topics are those of the broker's master, or of another slave, which may have an account of its own.
        return None
    async for part in in_chunks(list(tables.topics.of_broker.get(live.broker_name, ())), _TOPICS_AT_ONCE):
        for topic in part:
            if not account.may(_registration(key, live, topic)):
                return f"account {account.name} lacks {AccessClass.BROKER_CONTROL} for topic {topic}"
    return None


def _registration(key: BrokerAddrInfo, live: BrokerLiveInfo, topic: str | None) -> Permission:
    return Permission(RequestCode.REGISTER_BROKER, key.cluster_name, live.broker_name, topic, key.broker_addr)


def _connections_of(tables: RouteTables, key: BrokerAddrInfo) -> Iterator[int]:
    """Yield all connections of the broker: it would stay registered on a connection that is left open."""
    yield from list(tables.connections.others.get(key, ()))
    if (live := tables.broker_live_table.get(key)) is not None:
        yield live.connection_id
