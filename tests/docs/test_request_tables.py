"""The tables of requests on our pages have the codes of `REQUESTS`, each once and at its sender."""

import re
from typing import Final

from namesrv_remoting.requests import REQUESTS
from tests.docs.generated import PROTOCOL
from tests.support.pages import ROOT

# `sender` in REQUESTS -> first cells of its rows in docs/protocol.md.
_SENT_BY: Final = {"broker": "brokers", "client": "clients", "admin": "operators"}
# Codes in prose: `105`, `100 to 102`, and `from 20002 on`.
_CODES: Final = re.compile(r"from (?P<since>\d+) on|(?P<first>\d+)(?: to (?P<last>\d+))?")


def test_daemon_manual_lists_every_native_request() -> None:
    """The manual has number and name of each extension, in order."""
    rows = re.findall(r"^\| (\d{5}) \| `(\w+)` \|", (ROOT / "namesrv" / "README.md").read_text(), re.MULTILINE)

    extensions = sorted(kind.code for kind in REQUESTS.values() if kind.is_extension)
    assert rows == [(str(int(code)), code.name) for code in extensions]


def test_protocol_lists_every_request_at_its_sender() -> None:
    """Each row has the numbers of its sender; the server's own request is in the sentence below the table."""
    page = PROTOCOL.read_text()

    for sender, title in _SENT_BY.items():
        (cell,) = re.findall(rf"^\| {title} \| (.+) \|$", page, re.MULTILINE)
        assert (sender, sorted(_numbers(cell))) == (sender, _sent_by(sender))
    (own,) = re.findall(r"^The server sends one request, to brokers: (\d+),", page, re.MULTILINE)
    assert [int(own)] == _sent_by("server")


def _sent_by(sender: str) -> list[int]:
    return sorted(code for code, kind in REQUESTS.items() if kind.sender == sender)


def _numbers(cell: str) -> list[int]:
    numbers: list[int] = []
    for found in _CODES.finditer(cell):
        if found["since"]:
            numbers += (code for code in REQUESTS if code >= int(found["since"]))
        else:
            numbers += range(int(found["first"]), int(found["last"] or found["first"]) + 1)
    return numbers
