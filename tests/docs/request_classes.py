"""Requests of each access class, for docs/security.md."""

import re
from typing import Final

from namesrv_remoting.requests import REQUESTS, AccessClass
from tests.support.pages import ROOT

SECURITY: Final = ROOT / "docs" / "security.md"
# Access classes by their names on the page.
_TITLES: Final = {f"`{each}`": each for each in AccessClass} | {"any account": AccessClass.ANY_ACCOUNT}
_ROW: Final = re.compile(r"^\| (`[a-z-]+`|any account) \| [\d, ]+ \|.*\|$", re.MULTILINE)
_RULE_FIELDS: Final = ("clusters", "brokers", "topics", "broker_addresses")


def with_request_classes(page: str) -> str:
    """The page with the class table from the table of requests."""

    def row(match: re.Match[str]) -> str:
        codes = sorted(code for code, kind in REQUESTS.items() if kind.access_class is _TITLES[match[1]])
        return f"| {match[1]} | {', '.join(map(str, codes))} | {_narrowed_by(codes) or 'nothing'} |"

    return _ROW.sub(row, page)


def _narrowed_by(codes: list[int]) -> str:
    """The rule fields that narrow these requests, each with its codes unless it narrows all of them."""
    parts = []
    for field in _RULE_FIELDS:
        narrowed = [code for code in codes if field in REQUESTS[code].names]
        if narrowed:
            title = field.replace("_", " ")
            parts.append(title if narrowed == codes else f"{title}: {', '.join(map(str, narrowed))}")
    return "; ".join(parts)
