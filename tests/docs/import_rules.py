"""Imports allowed between our packages, by the contracts of import-linter in pyproject.toml."""

import pkgutil
import re
import tomllib
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from tests.support.pages import ROOT

ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
_ROW: Final = re.compile(r"^(\| \[`(namesrv\w*)`\].* \| )[^|]*\|$", re.MULTILINE)


def may_import(linter: Mapping[str, Any]) -> dict[str, list[str]]:
    """Package -> the packages that it may import, or the modules, if contracts forbid other modules of a package."""
    packages = linter["root_packages"]
    denied: dict[str, set[str]] = {package: {package} for package in packages}
    for contract in linter["contracts"]:
        if contract["type"] == "forbidden":
            for source in denied.keys() & set(contract["source_modules"]):
                denied[source] |= set(contract["forbidden_modules"])
        elif contract["type"] == "layers" and "containers" not in contract:
            above: set[str] = set()
            for layer in contract["layers"]:
                # Siblings separated by | must not import each other.
                siblings = set(re.findall(r"\w+", layer))
                above |= siblings
                for package in siblings:
                    denied[package] |= above
    return {
        package: [name for other in packages for name in _allowed(other, names)] for package, names in denied.items()
    }


def _allowed(package: str, denied: set[str]) -> list[str]:
    if package in denied:
        return []
    if not any(name.startswith(f"{package}.") for name in denied):
        return [package]
    modules = (f"{package}.{module.name}" for module in pkgutil.iter_modules(import_module(package).__path__))
    return [name for name in modules if name not in denied and not name.endswith(".__main__")]


def with_import_rules(page: str) -> str:
    """The page with the last column of its package table from the contracts."""
    allowed = may_import(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"])

    def row(match: re.Match[str]) -> str:
        return f"{match[1]}{', '.join(f'`{name}`' for name in allowed[match[2]]) or 'none of ours'} |"

    return _ROW.sub(row, page)
