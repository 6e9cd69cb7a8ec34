"""The peer of a connection: its addresses, role and account."""

from dataclasses import dataclass
from typing import Any

from namesrv_remoting.access import AccessFile, Account
from namesrv_remoting.address_views import DEFAULT_LISTENER
from namesrv_remoting.addresses import host_of
from namesrv_remoting.requests import AccessClass


@dataclass(slots=True, frozen=True)
class ConnectionIdentity:
    """The account of a connection by its certificate or address, under one state of the access file."""

    file: AccessFile
    # None if no certificate or network matches: requests have to be signed.
    account: Account | None
    # Access classes that the account may use with any names while this state of the file lasts.
    open_classes: frozenset[AccessClass]


@dataclass(slots=True)
class Peer:
    """Facts about the process at the other end of a connection."""

    # The peer address of the socket, with port ([::1]:9876). `proxied` is the address from a PROXY header: it is
    # displayed and logged, and an address view can match it; limits and access rules ignore it.
    address: str = "?"
    proxied: str | None = None
    # the name of the listener that accepted the connection
    listener: str = DEFAULT_LISTENER
    # the IPv4 address, or the /64 of the IPv6 address; limits, memory budget and read share are kept per network
    network: str = "?"
    # broker, client or admin, as `note_role` derives it from all requests; empty before the first request
    role: str = ""
    # the account of the last request, if the server has accounts
    account: str = ""
    # None before access control has looked for the account of this connection
    identity: ConnectionIdentity | None = None
    # topic -> revision of the last response, for the heartbeat log; None before the first response
    served: dict[str, int] | None = None
    # The encoded routes (`RoutesInView`, which cannot be imported here) in the address view of this connection; None
    # while the view is not known.
    routes: Any = None
    # serialize type of the last request; negative before the first request
    serialize_type: int = -1
    requests: int = 0
    # the TLS version; empty for plain text
    tls_version: str = ""

    @property
    def ip(self) -> str:
        """The peer address of the socket without the port: 127.0.0.1, ::1."""
        return host_of(self.address)

    @property
    def has_sent_request(self) -> bool:
        """Whether the peer has sent a request; a response, which the server ignores, is none."""
        return self.serialize_type >= 0

    @property
    def is_broker(self) -> bool:
        """Whether the peer has ever sent a request that only brokers send."""
        return self.role == "broker"

    def note_role(self, role: str) -> None:
        """Note the role that a request implies: broker replaces client, and client replaces admin, never the reverse.

        Brokers also read routes, and brokers and clients also send requests of operators, such as SERVER_INFO.
        """
        if not self.is_broker and (role != "admin" or not self.role):
            self.role = role


def address_text(address: object) -> str:
    """A socket address as text: 127.0.0.1:9876, [::1]:9876."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = str(address[0]), address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address)
