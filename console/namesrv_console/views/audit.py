"""Audit lines of several servers, merged into acts. Pure functions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from namesrv_client.ctl.audit_trail import Line, sentence
from namesrv_remoting.addresses import host_of

# An operator's program sends a request to all servers within this time; brokers register with them in it, too.
_TOGETHER_MS: Final = 15_000


@dataclass(slots=True)
class Act:
    """One act, with the line of the server that noticed it last."""

    line: Line
    # Servers, or the console whose trail has the line.
    where: list[str]

    @property
    def sentence(self) -> str:
        """The meaning of the act."""
        return sentence(self.line)


def acts(lines: Iterable[Line]) -> list[Act]:
    """Lines, newest first, with equal lines of several servers merged into the newest of them."""
    merged: list[Act] = []
    last: dict[object, Act] = {}
    for line in lines:
        where = str(line.get("nameserver") or line.get("console") or "")
        peer = line.get("peer")
        # The port of a peer differs from server to server.
        host = host_of(peer) if isinstance(peer, str) else None
        key = line["event"], line.get("account"), line.get("request"), host, sentence(line)
        known = last.get(key)
        if known and where not in known.where and known.line["ts_ms"] - line["ts_ms"] <= _TOGETHER_MS:
            known.where.append(where)
        else:
            last[key] = Act(line, [where])
            merged.append(last[key])
    return merged
