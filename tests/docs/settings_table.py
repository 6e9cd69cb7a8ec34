"""The daemon's settings as a table on a page."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from namesrv.server.reload import RELOADABLE
from namesrv.settings.catalog import SETTINGS, Setting


def settings_table() -> str:
    """One table for each topic, in the order of --help."""
    parts = groupby(SETTINGS.values(), key=lambda setting: setting.topic)
    return "\n".join(f"### {topic}\n\n{''.join(_rows(settings))}" for topic, settings in parts)


def _rows(settings: Iterable[Setting]) -> Iterator[str]:
    yield "| setting | default | may be | SIGHUP | what it means |\n|---|---|---|---|---|\n"
    for setting in settings:
        at_once = "changes it" if setting.name in RELOADABLE else "restart"
        facts = (f"`{setting.name}`", setting.default or "empty", setting.may_be, at_once, _cell(setting.consequence))
        yield f"| {' | '.join(facts)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
