"""Generated parts of our pages.

python -m tests.docs.generated

writes the frames of docs/protocol.md, as sent by a real server, the settings of docs/operating.md, the import rules of
docs/architecture.md, the requests of each access class in docs/security.md, and the names in docs/api. Tests fail when
a page is not current.
"""

import re
import sys
import tempfile
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from namesrv.settings.catalog import SETTINGS, Setting
from tests.docs import recording
from tests.docs.api_pages import PAGES as API_PAGES
from tests.docs.api_pages import with_names
from tests.docs.hexdump import dump
from tests.docs.import_rules import ARCHITECTURE, with_import_rules
from tests.docs.request_classes import SECURITY, with_request_classes
from tests.support.daemon import Daemon
from tests.support.pages import ROOT

PROTOCOL: Final = ROOT / "docs" / "protocol.md"
OPERATING: Final = ROOT / "docs" / "operating.md"
BEGIN: Final = "<!-- settings: begin, written by `python -m tests.docs.generated` -->\n"
END: Final = "<!-- settings: end -->\n"
_BLOCK: Final = "(<!-- example: {} -->\n```hex\n)(.*?)(```\n)"


def frames(data_dir: Path) -> dict[str, str]:
    """The frames of docs/protocol.md, by name of their block."""
    with Daemon(data_dir, recording.NAMED) as daemon:
        requests = recording.requests()
        responses = recording.responses(daemon.listening(), requests)
    found = {f"{name}.request": dump(frame) for name, frame in requests.items()}
    return found | {f"{name}.response": dump(frame) for name, frame in responses.items()}


def with_frames(page: str, blocks: Mapping[str, str]) -> str:
    """The page with these blocks; blocks missing on the page are left out."""
    for name, text in blocks.items():
        found = re.search(_BLOCK.format(re.escape(name)), page, re.DOTALL)
        if found is not None:
            page = f"{page[: found.start(2)]}{text}{page[found.end(2) :]}"
    return page


def with_settings(page: str) -> str:
    """The page with the current settings."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{settings_table()}\n{END}{after}"


def settings_table() -> str:
    """One table per topic, in the order of --help."""
    head = "| setting | default | may be | SIGHUP | what it means |\n|---|---|---|---|---|\n"
    parts = groupby(SETTINGS.values(), key=lambda setting: setting.topic)
    return "\n".join(f"### {topic}\n\n{head}{''.join(map(_row, settings))}" for topic, settings in parts)


def _row(setting: Setting) -> str:
    on_reload = {"request": "changes it, as does a request", "reload": "changes it", "restart": "restart"}
    # Only the first sentence; --help has the consequences of higher and lower values.
    meaning = setting.consequence.partition(". ")[0].removesuffix(".").replace("|", "\\|")
    cells = (f"`{setting.name}`", setting.default or "empty", setting.may_be, on_reload[setting.changed_by], meaning)
    return f"| {' | '.join(cells)} |\n"


def generated(data_dir: Path) -> dict[Path, str]:
    """Page -> its text with current generated parts; the frames come from a server with this data directory."""
    return {
        PROTOCOL: with_frames(PROTOCOL.read_text(), frames(data_dir)),
        OPERATING: with_settings(OPERATING.read_text()),
        ARCHITECTURE: with_import_rules(ARCHITECTURE.read_text()),
        SECURITY: with_request_classes(SECURITY.read_text()),
        **{page: with_names(page.read_text()) for page in API_PAGES},
    }


def main() -> int:
    """Write all pages."""
    with tempfile.TemporaryDirectory() as directory:
        for page, text in generated(Path(directory) / "data").items():
            page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
