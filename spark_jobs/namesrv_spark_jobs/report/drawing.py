"""Vega from vl-convert: charts as SVG, and the JavaScript that draws them in a browser."""

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
# vl-convert numbers the clips of all drawings in one sequence; the drawings of a page get names of their own
_CLIP: Final = re.compile(r'(id="|url\(#)(clip\d+)')
_NUMBER: Final = re.compile(r"\d+\.\d{2,}")
# attributes and elements that a static drawing does not need
_SURPLUS: Final = re.compile(
    r' (?:role|aria-[a-z]+|class|pointer-events|font-family|xmlns(?::xlink)?|version)="[^"]*"'
    r'|<path class="(?:back|fore)ground"[^>]*/>'
    # invisible elements for the pointer
    r'|<path [^>]*opacity="0"[^>]*/>'
)


def drawn(spec: Spec, name: str) -> str:
    """The chart as SVG, for paper and for browsers without scripts; `name` is unique on the page."""
    clips: dict[str, str] = {}

    def plain(tag: re.Match[str]) -> str:
        kept = _SURPLUS.sub("", tag[0])
        kept = _CLIP.sub(lambda clip: f"{clip[1]}{name}-{clips.setdefault(clip[2], str(len(clips)))}", kept)
        return _NUMBER.sub(lambda number: f"{float(number[0]):.1f}", kept)

    # only tags are changed: the text between them may be any name from a log
    return _TAG.sub(plain, vl_convert.vegalite_to_svg(spec))


@cache
def library() -> str:
    """The JavaScript of Vega, as `vegaEmbed`, with its interpreter of expressions, so that a page needs no `eval`.

    Bundling takes longer than a small report, so the bundle is kept in the user's cache directory.
    """
    kept = _kept_library()
    if kept is None:
        return _made_library()
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, ValueError):
        # not cached, or not readable
        made = _made_library()
    # without a writable cache directory the bundle is made each time
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        aside = kept.with_suffix(f".{os.getpid()}")
        aside.write_text(made, encoding="utf-8")
        aside.replace(kept)
    return made


def _made_library() -> str:
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _kept_library() -> Path | None:
    """The bundle in the cache directory; None for a user without a home directory.

    The cache directory is XDG_CACHE_HOME if that is an absolute path, as the XDG specification demands.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():
        try:
            caches = Path("~/.cache").expanduser()
        except RuntimeError:
            return None
    return caches / "namesrv" / f"vega-{version('vl-convert-python')}.js"
