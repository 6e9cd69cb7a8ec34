"""Is this directory a report of ours, and is this text a path at all?"""

import json
import re
from pathlib import Path
from typing import Final

PROGRAM: Final = "namesrv-staleness"
# by this file a directory is known as a report of ours: it may be replaced, and is no input
RUN_FILE: Final = "run.json"
# one letter before the colon would be a drive
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://")


def is_report(directory: Path) -> bool:
    """Whether this directory is a finished report of ours."""
    try:
        run = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(run, dict) and run.get("program") == PROGRAM


def is_url(text: str) -> bool:
    """Whether it is for Spark to open: a scheme other than `file`."""
    match = _URL.match(text)
    return match is not None and match["scheme"].lower() != "file"
