"""How values are shown: times, permissions, and text from servers, so that it can do nothing.

Names come from brokers, and anybody who reaches the port can register one: an escape sequence in a topic's name would
repaint an operator's terminal, a right-to-left mark would turn its neighbours around.
"""

import json
import math
import re
import time
from typing import Final

from namesrv_remoting.codes import Permission


def lasting(seconds: float | None) -> str | None:
    """A time as people say it: 0.3 s, 3 m 20 s, 2 h 5 m, 4 d 1 h."""
    if seconds is None or not math.isfinite(seconds):
        # a server may say anything
        return None
    sign, whole = ("-" if seconds < 0 else ""), int(abs(seconds))
    for unit, name, smaller, smaller_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            return f"{sign}{whole // unit} {name} {whole % unit // smaller} {smaller_name}"
    return f"{seconds:.1f} s"


def ago(seconds: float | None) -> str | None:
    """How long it is over."""
    said = lasting(seconds)
    return None if said is None else f"{said} ago"


def moment(ts_ms: int | None) -> str | None:
    """A time of day on this machine's clock."""
    if ts_ms is None:
        return None
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ts_ms / 1000)) + f".{ts_ms % 1000:03}"
    except (ValueError, OverflowError, OSError):
        # a server may say anything
        return str(ts_ms)


def perm_text(perm: int) -> str:
    """A permission as RocketMQ writes it: read, write, inherit."""
    return "".join(
        letter if perm & bit else "-"
        for letter, bit in (("R", Permission.READ), ("W", Permission.WRITE), ("X", Permission.INHERIT))
    )


# in JSON the only unprintable character outside of strings is the line break
_BEYOND_ASCII: Final = re.compile(r"[^\n\x20-\x7e]")


def shown(text: str) -> str:
    r"""The text with everything that is not printable as a Python escape: ESC is `\x1b`, a line break `\n`."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def json_text(encoded: str, *, is_ascii: bool = False) -> str:
    """JSON with the unprintable characters of its strings (or all beyond ASCII) as escapes; it says the same."""
    return _BEYOND_ASCII.sub(
        lambda found: found[0] if found[0].isprintable() and not is_ascii else json.dumps(found[0])[1:-1], encoded
    )
