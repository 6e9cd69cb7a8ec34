"""Audit lines of several servers, merged into acts. Pure functions."""

from collections.abc import Iterable

from namesrv_client.ctl.audit_trail import Line, sentence
from namesrv_console.views.events import Happening, merged
from namesrv_remoting.addresses import host_of


def acts(lines: Iterable[Line]) -> list[Happening[Line]]:
    """Lines, newest first, with equal lines of several servers merged into the newest of them."""
    return merged((_where(line), line, _about(line), line["ts_ms"]) for line in lines)


def _where(line: Line) -> str:
    """The server, or the console whose trail has the line."""
    return str(line.get("nameserver") or line.get("console") or "")


def _about(line: Line) -> object:
    peer = line.get("peer")
    # The port of a peer differs from server to server.
    host = host_of(peer) if isinstance(peer, str) else None
    return line["event"], line.get("account"), line.get("request"), host, sentence(line)
