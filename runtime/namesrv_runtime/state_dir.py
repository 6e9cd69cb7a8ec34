"""The default directory of a program's files, by the XDG rule."""

from collections.abc import Mapping
from pathlib import Path


def state_dir(environ: Mapping[str, str], program: str) -> Path:
    """Return the default directory of a program's files by the XDG rule, for root as for all users."""
    state_home = Path(environ.get("XDG_STATE_HOME", ""))
    if not state_home.is_absolute():  # the rule says to ignore a relative path
        try:
            home = Path(environ.get("HOME") or Path.home())
        except RuntimeError:  # the user has no home, as in containers
            return Path("/var/lib") / program
        state_home = home / ".local" / "state"
    return state_home / program
