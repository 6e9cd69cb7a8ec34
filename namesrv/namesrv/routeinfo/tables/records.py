"""Keys and values of the route tables, registrations, and the options by which routes are made.

All values but the options are frozen: a table's entry is replaced, never edited.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec

from namesrv.routeinfo import acting_master
from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED, AdvertisedAddresses
from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.codes import HEARTBEAT_SECONDS

Kind = Literal["full", "delta"]
Reason = Literal["silent", "disconnected", "unregistered", "superseded"]

# A broker that is silent for so long, or for three quarters of its expiry if that is less, has missed a heartbeat.
_SUSPECT_SECONDS: Final = 1.5 * HEARTBEAT_SECONDS
_SUSPECT_SHARE: Final = 0.75


class BrokerAddrInfo(NamedTuple):
    """The key of a live broker. An address alone is not enough: two clusters may use the same one."""

    cluster_name: str
    broker_addr: str


class BrokerLiveInfo(msgspec.Struct, frozen=True, gc=False):
    """One live broker: its registration, and the time of its last heartbeat."""

    broker_name: str
    broker_id: int
    # Time of the last heartbeat in liveness seconds, see liveness.py.
    last_update: float
    # The broker's expiry.
    expiry_seconds: float
    # None (the broker sent no version) differs from every other version.
    data_version: DataVersion | None
    # The broker's own connection. A registration over a newer connection moves the broker there at once, heartbeats
    # over another connection only once this one is closed.
    connection_id: int
    ha_server_addr: str | None
    # The number of this registration, unique within a boot; removals are fenced with it.
    generation: int
    # Native agents only: the id of the process, and its registration sequence.
    agent_id: str | None = None
    registration_seq: int | None = None
    is_native: bool = False
    # The state that the broker reports in its heartbeats.
    state: Mapping[str, Any] | None = None
    # The account that registered the broker, if accounts exist.
    account: str = ""
    advertised: AdvertisedAddresses = NOTHING_ADVERTISED
    # The peer address of the broker's last registration, as limits count it; the connection may have closed since.
    network: str = ""

    def expires_at(self) -> float:
        """Return the last moment at which the broker counts as alive."""
        return self.last_update + self.expiry_seconds

    def is_suspect(self, now: float, last_seen: float | None = None) -> bool:
        """True if the broker has missed a heartbeat; `last_seen` replaces the last heartbeat of the live entry."""
        last = self.last_update if last_seen is None else last_seen
        return now - last > min(_SUSPECT_SECONDS, _SUSPECT_SHARE * self.expiry_seconds)

    def seen(self, now: float, connection_id: int, state: Mapping[str, Any] | None) -> "BrokerLiveInfo":
        """Return the entry with a heartbeat now, on this connection."""
        return BrokerLiveInfo(
            self.broker_name,
            self.broker_id,
            now,
            self.expiry_seconds,
            self.data_version,
            connection_id,
            self.ha_server_addr,
            self.generation,
            self.agent_id,
            self.registration_seq,
            self.is_native,
            self.state if state is None else state,
            self.account,
            self.advertised,
            self.network,
        )


@dataclass(frozen=True, slots=True)
class Registration:
    """One broker's registration, decoded and checked, not yet applied."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    body: RegisterBrokerBody
    connection_id: int
    expiry_seconds: float
    ha_server_addr: str | None = None
    zone_name: str | None = None
    # None for a broker older than 5.x, which does not send it.
    enable_acting_master: bool | None = None
    is_native: bool = False
    kind: Kind = "full"
    agent_id: str | None = None
    registration_seq: int | None = None
    # Digest of request and account, by which the next equal request is recognised; None: the next one is applied.
    digest: bytes | None = None
    # The account of the request, if accounts exist.
    account: str = ""
    # Squatting brokers of other accounts, which the registration removes -> their account.
    displaces: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def key(self) -> BrokerAddrInfo:
        """The key of the registration's live entry."""
        return BrokerAddrInfo(self.cluster_name, self.broker_addr)

    def addrs_after(self, before: Mapping[int, str]) -> dict[int, str]:
        """Return the group's addresses, ordered by id as in responses, after the broker has registered.

        The same address under another id is this broker in its former role, and leaves the group.
        """
        others = {i: addr for i, addr in before.items() if addr != self.broker_addr and i != self.broker_id}
        return dict(sorted({**others, self.broker_id: self.broker_addr}.items()))

    def makes_routes(self, addrs_before: Mapping[int, str]) -> bool:
        """True for a registration of a master, or of a prime slave that sends `enable_acting_master`, true or false."""
        addrs, flag = self.addrs_after(addrs_before), self.enable_acting_master
        return acting_master.makes_routes(self.broker_id, addrs, enable_acting_master=flag)


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """Addresses of the master in the response to a slave; empty for masters and without a live master."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


@dataclass(slots=True)
class RouteOptions:
    """The settings that shape tables and routes; all can change while the server runs."""

    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    order_message_enable: bool = False
    delete_topic_with_broker_registration: bool = False
