"""The texts of the pages, in each language."""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from namesrv_client.ctl.output import filled

LANGUAGES: Final = ("en", "zh")
_ACCEPTED: Final = re.compile(r"\s*([a-z]{2,3})(?:-[^;,]*)?\s*(?:;\s*q=([0-9.]+))?\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The texts of one language: `section.key` -> text."""

    language: str
    texts: dict[str, str] = field(repr=False)

    def text(self, key: str, /, **values: object) -> str:
        """The text of a key, with its placeholders filled. Raises KeyError if the key is unknown."""
        found = self.texts[key]
        return filled(found, **values) if values else found

    def reason(self, text: str) -> str:
        """A fixed reason in this language; any other text, such as one with a number or a name, as it is."""
        return self.texts.get(f"reason.{text}", text)

    def section(self, name: str) -> Callable[..., str]:
        """The function `text` for the keys of one section."""
        return lambda key, /, **values: self.text(f"{name}.{key}", **values)


@cache
def catalogue(language: str) -> Catalogue:
    """The catalogue of one of LANGUAGES."""
    source = files("namesrv_console").joinpath("locales", f"{language}.toml").read_text(encoding="utf-8")
    sections: dict[str, dict[str, Any]] = tomllib.loads(source)
    texts = {f"{name}.{key}": text for name, section in sections.items() for key, text in section.items()}
    return Catalogue(language, texts)


def chosen_language(wanted: str | None, accepted: str) -> str:
    """The wanted language, else the one of LANGUAGES that the browser prefers, else English."""
    if wanted in LANGUAGES:
        return wanted
    ranked = [(-float(found[2] or 1), found[1].lower()) for part in accepted.split(",") if (found := _match(part))]
    return next((language for _, language in sorted(ranked, key=lambda it: it[0]) if language in LANGUAGES), "en")


def _match(part: str) -> re.Match[str] | None:
    found = _ACCEPTED.fullmatch(part)
    return found if found is None or (found[2] or "1").replace(".", "", 1).isdigit() else None
