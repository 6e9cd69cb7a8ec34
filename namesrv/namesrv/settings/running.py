"""The settings of a running server, which reloads and requests change."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from namesrv.routeinfo.records import RouteOptions
from namesrv.settings.limits import Limits
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


@dataclass(slots=True)
class RunningSettings:
    """The settings that a server runs with; `live` and `limits` are changed in place, so all holders see changes."""

    # The settings of the start or the last reload, without changes by requests.
    current: Settings
    live: LiveSettings
    limits: Limits
    # Setting -> where its value came from.
    origins: dict[str, str]

    def effective(self) -> dict[str, Any]:
        """Return all settings, including changes made by requests."""
        return {**dict(self.current), **asdict(self.live)}

    def follow(self, changed: Mapping[str, object]) -> None:
        """Apply validated changes of a reload; no step can fail half-way."""
        self.current = self.current.model_copy(update=dict(changed))
        self.limits.follow(self.current)
        for name in changed.keys() & LIVE:
            setattr(self.live, name, changed[name])

    def change_by_request(self, name: str, value: object) -> None:
        """Change a live setting."""
        setattr(self.live, name, value)
        self.origins[name] = "request"
