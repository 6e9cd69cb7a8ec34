"""The settings of a running server, which reloads and requests change."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from namesrv.settings.limits import Limits
from namesrv.settings.live import LIVE, LiveSettings
from namesrv.settings.model import Settings


@dataclass(slots=True)
class RunningSettings:
    """The settings that a server runs with; `live` and `limits` are changed in place, so all holders see changes."""

    # The settings of the last reload, without changes by requests; settings that need a restart are those of the start.
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
