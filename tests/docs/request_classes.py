"""Requests of each access class, for docs/security.md."""

import re
from typing import Final

from namesrv_remoting.requests import REQUESTS, AccessClass
from tests.support.pages import ROOT

SECURITY: Final = ROOT / "docs" / "security.md"
# Access classes by their names on the page.
_TITLES: Final = {f"`{each}`": each for each in AccessClass} | {"any account": AccessClass.ANY_ACCOUNT}
_ROW: Final = re.compile(r"^\| (`[a-z-]+`|any account) \| [\d, ]+ \|", re.MULTILINE)


def with_request_classes(page: str) -> str:
    """The page with the second column of its class table from the table of requests."""

    def row(match: re.Match[str]) -> str:
        codes = sorted(code for code, kind in REQUESTS.items() if kind.access_class is _TITLES[match[1]])
        return f"| {match[1]} | {', '.join(map(str, codes))} |"

    return _ROW.sub(row, page)
