"""`views`: checks of an address views file, and the addresses of brokers as a given peer gets them."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from namesrv_client.ctl.files import read_file
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report, table
from namesrv_client.ctl.running import print_once, show_list
from namesrv_remoting.address_views import (
    DEFAULT_LISTENER,
    AddressView,
    AddressViews,
    BrokerIdentity,
    Viewer,
    parse_address_views,
)
from namesrv_remoting.addresses import address_of
from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED
from namesrv_remoting.bodies.extensions import LiveBroker

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", envvar="NAMESRV_ADDRESS_VIEWS", help="The daemon's --address-views.", show_default=False
    ),
]


def check(options: Options, file: File) -> None:
    """Check an address views file, and list its views. Exits with 1 if a server would refuse it."""
    views = [_summary(view) for view in read_file(file, parse_address_views).views]
    rows = [[value or None for value in view.values()] for view in views]
    remarks = [] if views else [f"{file}: no views"]
    print_once(options, Report({"views": views}, table(tuple(views[0]) if views else (), rows), remarks=remarks))


def explain(  # noqa: PLR0913, PLR0917 - each is an option
    options: Options,
    file: File,
    address: Annotated[
        str, typer.Option("--from", metavar="ADDRESS", help="Address of the peer that asks.", show_default=False)
    ],
    account: Annotated[str, typer.Option("--account", help="Account of the peer.")] = "",
    certificate: Annotated[list[str] | None, typer.Option("--certificate", help="Name in its certificate.")] = None,
    listener: Annotated[
        str, typer.Option("--listener", help="Name of the listener that it connects to.")
    ] = DEFAULT_LISTENER,
) -> None:
    """Show which address of each registered broker a peer gets, and by which view of a file.

    A broker that advertises an address for a view that the file does not have is named below the table.
    """
    if address_of(address) is None:
        raise typer.BadParameter(f"not an IP address: {address!r}", param_hint="--from")
    views = read_file(file, parse_address_views)
    view = views.view_of(Viewer(address, account, certificate or (), listener))

    def members(broker: LiveBroker) -> dict[str, Any]:
        """The broker for programs; `shown` is None for a hidden one."""
        registered, identity = broker.broker_addr, BrokerIdentity(broker.cluster, broker.broker_name, broker.broker_id)
        advertised = broker.advertised or NOTHING_ADVERTISED
        return {
            **identity._asdict(),
            "registered": registered,
            "view": None if view is None else view.name,
            "shown": registered if view is None else view.address(identity, registered, advertised.broker_addr),
        }

    show_list(
        options,
        lambda server: server.brokers(),
        "brokers",
        {
            "cluster": lambda it: it["cluster"],
            "broker": lambda it: it["broker_name"],
            "id": lambda it: it["broker_id"],
            "registered": lambda it: it["registered"],
            "view": lambda it: it["view"] or "none",
            "shown": lambda it: it["shown"] or "hidden",
        },
        lambda brokers: map(members, brokers),
        document=lambda brokers: [members(broker) for broker in brokers],
        remarks=lambda given: _unknown_views(views, chain.from_iterable(given.values())),
    )


def _unknown_views(views: AddressViews, brokers: Iterable[LiveBroker]) -> list[str]:
    """A line for each view that brokers advertise addresses for, and that the file does not have."""
    known, by_view = {view.name for view in views.views}, defaultdict[str, set[str]](set)
    for broker in brokers:
        for view in () if broker.advertised is None else broker.advertised.views:
            by_view[view].add(broker.broker_name)
    return [
        f"no view {view} in the file: addresses that {', '.join(sorted(names))} advertised for it are not used"
        for view, names in sorted(by_view.items())
        if view not in known
    ]


def _summary(view: AddressView) -> dict[str, str]:
    return {
        "view": view.name,
        "networks": ", ".join(map(str, view.networks or ())),
        "accounts": ", ".join(view.accounts.texts) if view.accounts else "",
        "certificates": ", ".join(view.certificates.texts) if view.certificates else "",
        "listeners": ", ".join(view.listeners.texts) if view.listeners else "",
        "brokers": ", ".join(rule.shown for rule in view.rules),
        "others": "hide" if view.hides_others else "show",
    }
