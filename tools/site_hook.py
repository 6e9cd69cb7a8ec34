"""What MkDocs is told beyond mkdocs.yml: the site's pages are our pages, from where they lie, under their own paths.

A manual stands beside its code and links to other files by relative paths, as a forge shows it. Those paths are the
site's too, so that no link has to be rewritten; a file that a page links to and that is no page goes along as it is.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

from tests.support.pages import ROOT, pages

_LINK: Final = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
_CHINESE: Final = re.compile(r"^docs/zh/|\.zh-CN\.md$")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Headings have the anchors that forges give them."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """In the place of what lies in docs/: every page there is, and what they link to."""
    found = [page.relative_to(ROOT).as_posix() for page in pages()]
    site = Files([file for file in files if file.src_dir != config.docs_dir])
    for path in (*found, *sorted(_linked(found))):
        site.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return site


def _linked(found: list[str]) -> set[str]:
    links = (
        ((ROOT / page).parent / target).resolve()
        for page in found
        for target in _LINK.findall((ROOT / page).read_text())
    )
    return {path.relative_to(ROOT).as_posix() for path in links if path.is_file() and path.suffix != ".md"}


def on_page_context(context: Mapping[str, Any], page: Page, config: MkDocsConfig, **_: object) -> Mapping[str, Any]:
    """A page says in which language it is, and so does what stands around it."""
    config.theme["language"] = "zh" if _CHINESE.search(page.file.src_uri) else "en"
    return context
