"""Addresses that a native broker advertises for each address view: peers on other networks reach the broker there."""

from collections.abc import Mapping
from typing import Final

import msgspec

from namesrv_remoting.addresses import is_endpoint

# Limits, since the server keeps these addresses for every live broker; a broker is on a handful of networks.
MAX_ADVERTISED_VIEWS: Final = 16
MAX_VIEW_CHARACTERS: Final = 255


class AdvertisedAddresses(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A broker's addresses and the addresses of its HA server, by the name of the view, as the broker sent them."""

    broker_addr: Mapping[str, str] = {}
    ha_server_addr: Mapping[str, str] = {}

    @property
    def addresses(self) -> list[str]:
        """The addresses of the broker, then those of the HA server."""
        return [*self.broker_addr.values(), *self.ha_server_addr.values()]

    @property
    def views(self) -> list[str]:
        """The sorted names of the views with an address."""
        return sorted({*self.broker_addr, *self.ha_server_addr})


NOTHING_ADVERTISED: Final = AdvertisedAddresses()


def check_advertised(addresses: Mapping[str, str]) -> None:
    """Check a mapping of view names to addresses. Raises ValueError with the problem."""
    if len(addresses) > MAX_ADVERTISED_VIEWS:
        raise ValueError(f"{len(addresses)} views, limit {MAX_ADVERTISED_VIEWS}")
    for view, address in addresses.items():
        if not 0 < len(view) <= MAX_VIEW_CHARACTERS:
            raise ValueError(f"name of a view of {len(view)} characters: must be 1 to {MAX_VIEW_CHARACTERS}")
        if not is_endpoint(address, least_port=1):
            shown = address[:MAX_VIEW_CHARACTERS]
            raise ValueError(f"view {view}: {shown!r} is not a host and port (for example 203.0.113.7:30911)")
