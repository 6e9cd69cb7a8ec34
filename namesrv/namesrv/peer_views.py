"""The address view of each peer: how a NameServer shows the addresses of brokers to it."""

from namesrv.net.dispatcher import Request
from namesrv.net.peer import Peer
from namesrv.net.protocol import ServerConnection
from namesrv_remoting.address_views import AddressView, AddressViews, Viewer
from namesrv_remoting.addresses import host_of


class PeerViews:
    """The current address views file, and the view of each peer in it."""

    def __init__(self, file: AddressViews) -> None:
        self.follow(file)

    def __repr__(self) -> str:
        return f"<PeerViews [{len(self.file.views)} views]>"

    def follow(self, file: AddressViews) -> None:
        """Use another file from now on."""
        self.file = file
        # False without views: every peer then gets the registered addresses
        self.is_active = bool(file.views)
        # True if requests of one connection may have different views
        self.need_accounts = file.need_accounts

    def of_connection(self, connection: ServerConnection) -> AddressView | None:
        """The view of all requests of a connection, unless views need accounts; None for registered addresses."""
        peer = connection.peer
        known: tuple[AddressViews, AddressView | None] | None = peer.view
        if known is None or known[0] is not self.file:
            known = peer.view = self.file, self.file.view_of(_viewer(peer, connection, ""))
        return known[1]

    def of_request(self, request: Request) -> AddressView | None:
        """The view of one request; None for registered addresses."""
        if not self.is_active:
            return None
        if not self.need_accounts:
            return self.of_connection(request.connection)
        return self.file.view_of(_viewer(request.connection.peer, request.connection, request.account))


def _viewer(peer: Peer, connection: ServerConnection, account: str) -> Viewer:
    # The address of a PROXY header is trusted, since it is read only where the setting proxy_protocol says so.
    ip = host_of(peer.proxied) if peer.proxied else peer.ip
    return Viewer(ip, account, connection.certificate_names, peer.listener)
