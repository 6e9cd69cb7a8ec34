"""The routes of the tables, as peers get them."""

from dataclasses import dataclass

from namesrv.encoded_routes import EncodedRoutes, RoutesInView
from namesrv.net.request import Request
from namesrv.peer_views import PeerViews
from namesrv.state.lost_routes import LostRoutes
from namesrv.state.watchers import RouteWatchers
from namesrv_remoting.address_views import AddressView


@dataclass(slots=True)
class ServedRoutes:
    """Routes as responses: encoded, in the address view of each peer, with the requests that wait for a change."""

    encoded: EncodedRoutes
    # Addresses of brokers as peers on other networks reach them.
    views: PeerViews
    watchers: RouteWatchers
    # Why topics have no route any more, for the remark of code 17.
    lost: LostRoutes

    def view_of(self, request: Request) -> AddressView | None:
        """Return the address view of a request; None for addresses as registered."""
        return self.in_view_of(request).view

    def in_view_of(self, request: Request) -> RoutesInView:
        """Return the encoded routes in the address view of a request."""
        return self.views.routes_of(request.connection, request.account)
