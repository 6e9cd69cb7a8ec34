"""The peer of a connection: who it is, and what is known about it."""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Peer:
    """Who is at the other end of a connection, and what is known about it."""

    # the socket's address, with and without its port, and the address that a proxy named, for people only
    address: str = "?"
    ip: str = "?"
    proxied: str | None = None
    # its IPv4 address, or the /64 of its IPv6 address: limits, memory and share of the loop belong to that
    network: str = "?"
    # broker, client or admin, by its last request of these
    role: str = ""
    # the account of its last request, where there are accounts
    account: str = ""
    # what access control knows about the connection, and what the heartbeat log does
    identity: Any = None
    served: Any = None
    # of the last request; negative before the first one
    serialize_type: int = -1
    requests: int = 0
    # empty: plain text
    tls_version: str = ""

    @property
    def has_spoken(self) -> bool:
        """Whether it has sent a request."""
        return self.serialize_type >= 0

    @property
    def is_broker(self) -> bool:
        """Whether it has ever sent a request that only brokers send."""
        return self.role == "broker"

    def note_role(self, role: str) -> None:
        """It sent a request of peers of this role; a broker stays one, and a client that does what admins do, too."""
        if not self.is_broker and (role != "admin" or not self.role):
            self.role = role


def address_text(address: object) -> str:
    """An address as people write it: 127.0.0.1:9876, [::1]:9876."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = str(address[0]), address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
