"""How are times and permissions said?"""

import math
import time


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
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
