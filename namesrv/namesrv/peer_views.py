"""The address view of each peer: how a NameServer shows the addresses of brokers to the peer."""

from collections.abc import Mapping

from namesrv.encoded_routes import EncodedRoutes, RoutesInView
from namesrv.net.request import Connection
from namesrv_remoting.address_views import AddressViews, Viewer
from namesrv_remoting.addresses import host_of


class PeerViews:
    """The current address views file, and the view of each peer in it.

    Unless views need accounts, all requests of a connection have the same view. The view is looked up once, and the
    connection's `peer.routes` are then the encoded routes in this view.
    """

    def __init__(self, file: AddressViews, routes: EncodedRoutes, connections: Mapping[int, Connection]) -> None:
        self.file = file
        self._routes = routes
        self._connections = connections

    def __repr__(self) -> str:
        return f"<PeerViews [{len(self.file.views)} views]>"

    def follow(self, file: AddressViews) -> None:
        """Use another file from now on; the caller drops the cached responses."""
        self.file = file
        self._routes.forget_views()
        for connection in self._connections.values():
            connection.peer.routes = None

    def routes_of(self, connection: Connection, account: str = "") -> RoutesInView:
        """The encoded routes in the view of a connection; if views need accounts, for this account."""
        known: RoutesInView | None = connection.peer.routes
        if known is not None:
            return known
        routes = self._routes.in_view(self.file.view_of(_viewer(connection, account)))
        if not self.file.need_accounts:
            connection.peer.routes = routes
        return routes


def _viewer(connection: Connection, account: str) -> Viewer:
    peer = connection.peer
    # The address of a PROXY header is trusted, since it is read only where the setting proxy_protocol says so.
    ip = host_of(peer.proxied) if peer.proxied else peer.ip
    return Viewer(ip, account, connection.certificate_names, peer.listener)
