"""Versions of the route tables, and digests of registrations, by which outdated values and repetitions are recognised.

A value that was made from the tables is kept with the version of its input, and is made anew when the version differs.
A registration whose digest equals that of the broker's last one would change nothing.
"""

from dataclasses import dataclass

from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo


@dataclass(slots=True)
class TableVersions:
    """Counters of changes; each of them only grows. Routes have their own version, see `RouteRevisions`."""

    # The number of the last registration, its generation.
    generation: int = 0
    # Grows with every change of a snapshot's contents: a broker comes, goes or changes its name or id; a write
    # permission is removed or returns; the wait for the brokers of the last boot ends.
    membership: int = 0
    # Grows when a broker comes, goes, or registers from another peer address or by another account.
    ownership: int = 0

    def next_generation(self) -> int:
        """Return the generation of a further registration."""
        self.generation += 1
        return self.generation

    def live_changed(self, before: BrokerLiveInfo | None, after: BrokerLiveInfo | None) -> None:
        """Note the change of a live entry; None without an entry. A mere heartbeat is no change."""
        if before is None or after is None:
            self.ownership += 1
            self.membership += 1
            return
        self.ownership += (before.network, before.account) != (after.network, after.account)
        self.membership += (before.broker_name, before.broker_id) != (after.broker_name, after.broker_id)


class RegistrationDigests:
    """The digest of each broker's last registration, if an equal one would change nothing.

    Invariants:

    1. Only live brokers have a digest.
    2. Since the registration, no other change touched the broker's topics, and the options of its plan are the same.
    """

    def __init__(self) -> None:
        # Broker -> digest of its last registration.
        self.of_broker: dict[BrokerAddrInfo, bytes] = {}
        # Grows when the options change by which registrations are planned.
        self.options_version = 0

    def __repr__(self) -> str:
        return f"<RegistrationDigests [{len(self.of_broker)}]>"

    def keep(self, key: BrokerAddrInfo, digest: bytes | None, options_version: int) -> None:
        """Keep the digest of a registration that was planned under these options; without one, drop the last."""
        if digest is None or options_version != self.options_version:
            self.drop(key)
        else:
            self.of_broker[key] = digest

    def drop(self, key: BrokerAddrInfo) -> None:
        """Drop the digest of a broker: its next registration is applied even if it is unchanged."""
        self.of_broker.pop(key, None)

    def options_changed(self) -> None:
        """Drop all digests, and do not keep those of registrations that are being planned."""
        self.options_version += 1
        self.of_broker.clear()
