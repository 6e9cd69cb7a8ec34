"""The settings that requests (318) can change while the server runs."""

from dataclasses import dataclass, fields
from typing import Final

from namesrv.routeinfo.tables.records import RouteOptions
from namesrv.settings.model import Settings


@dataclass(slots=True)
class LiveSettings(RouteOptions):
    """The settings that requests (318) can change, and nothing else."""

    enable_topic_list: bool = True
    enable_all_topic_list: bool = True

    @classmethod
    def of(cls, settings: Settings) -> "LiveSettings":
        """Return the live settings at the start."""
        return cls(**{item.name: getattr(settings, item.name) for item in fields(cls)})


LIVE: Final = frozenset(item.name for item in fields(LiveSettings))
