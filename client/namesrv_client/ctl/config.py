"""`config`: how is each server set, and what can be changed while it runs?"""

from typing import Annotated

import typer

from namesrv_client.ctl.listing import done, listing, nos_of
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import change, confirm, on, show
from namesrv_client.ctl.servers import Servers

Keys = Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Only these.", show_default=False)]
Assignments = Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="New values.", show_default=False)]


def show_config(options: Options, keys: Keys = None) -> None:
    """The settings in effect, by the names of Apache's namesrv.properties.

    Ends with 1 when a server that answered lacks one of the keys asked for.
    """

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.config())
        return listing(
            answers,
            "config",
            document=lambda found: _chosen(found, keys),
            columns=("key", "value"),
            rows=lambda found: _chosen(found, keys).items(),
            nos=nos_of(answers, lambda found: [f"setting {key}" for key in keys or () if key not in found]),
        )

    show(options, ask)


def _chosen(found: dict[str, str], keys: list[str] | None) -> dict[str, str]:
    return {key: value for key, value in sorted(found.items()) if not keys or key in keys}


def set_config(options: Options, assignments: Assignments) -> None:
    """Change settings of the running servers; a server of namesrv allows it with --admin-enabled only.

    Ends with 1 when one of them did not take the change.
    """
    settings = dict(_assignment(text) for text in assignments)
    change_settings(options, settings)


def change_settings(options: Options, settings: dict[str, str]) -> None:
    """The same, read already."""
    changes = ", ".join(f"{key} to {value}" for key, value in settings.items())
    confirm(options, f"set {changes} {on(options)}")

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.set_config(settings))
        return done(answers, {"config": settings})

    change(options, ask)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="KEY=VALUE")
    return key.strip(), value
