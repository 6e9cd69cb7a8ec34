"""The style sheet, which is part of each page: a browser paints the page without a second request."""

import base64
import hashlib
from importlib.resources import files
from typing import Final

STYLE: Final = files("namesrv_console").joinpath("templates/console.css").read_text(encoding="utf-8")
# The source by which a Content-Security-Policy allows this style sheet, and no other.
STYLE_SOURCE: Final = f"'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
