"""A hook of MkDocs: the site's pages are the pages of the repository, under the same paths.

A manual stands beside its code and links to other files by relative paths, as on GitHub. The site has the same paths,
so that links need no change; linked files that are not pages are copied.
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
    """Give headings the same anchors as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by all pages of the repository and the files that they link to."""
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
    """Set the language of the page and of the theme around it."""
    config.theme["language"] = "zh" if _CHINESE.search(page.file.src_uri) else "en"
    return context
