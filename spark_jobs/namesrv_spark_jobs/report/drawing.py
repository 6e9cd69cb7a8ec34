"""Vega, from vl-convert: charts drawn as SVG, and the JavaScript that draws them in a browser."""

import os
import re
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import vl_convert

from namesrv_spark_jobs.report.vega_lite import Spec

_TAG: Final = re.compile(r"<[^>]*>")
# a drawing names its clips by numbers that go on from one drawing to the next; there are several on one page
_CLIP: Final = re.compile(r'(id="|url\(#)(clip\d+)')
_NUMBER: Final = re.compile(r"\d+\.\d{2,}")
# what a page that is read, and not touched, has no use for
_SURPLUS: Final = re.compile(
    r' (?:role|aria-[a-z]+|class|pointer-events|font-family|xmlns(?::xlink)?|version)="[^"]*"'
    r'|<path class="(?:back|fore)ground"[^>]*/>'
    # what waits for a pointer
    r'|<path [^>]*opacity="0"[^>]*/>'
)


def drawn(spec: Spec, name: str) -> str:
    """The chart as SVG, for paper and for browsers without scripts; `name` is unique on the page."""
    clips: dict[str, str] = {}

    def plain(tag: re.Match[str]) -> str:
        kept = _SURPLUS.sub("", tag[0])
        kept = _CLIP.sub(lambda clip: f"{clip[1]}{name}-{clips.setdefault(clip[2], str(len(clips)))}", kept)
        return _NUMBER.sub(lambda number: f"{float(number[0]):.1f}", kept)

    # what stands between tags may look like anything: it is a name from a log
    return _TAG.sub(plain, vl_convert.vegalite_to_svg(spec))


@cache
def library() -> str:
    """Vega for a page, as `vegaEmbed`; with its interpreter of expressions, so that a page needs no `eval`.

    Bundling it takes longer than a small report: it is kept where users keep what can be made again.
    """
    kept = _caches() / f"vega-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, ValueError):
        # not yet, or not readable
        made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # somebody without a home pays each time
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        aside = kept.with_suffix(f".{os.getpid()}")
        aside.write_text(made, encoding="utf-8")
        aside.replace(kept)
    return made


def _caches() -> Path:
    """By the XDG rule, which knows absolute paths only."""
    told = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (told if told.is_absolute() else Path("~/.cache").expanduser()) / "namesrv"
