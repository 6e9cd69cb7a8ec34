"""docs/architecture.md says what each package may import, as `make lint` enforces it."""

import tomllib

from tests.docs.import_rules import ARCHITECTURE, packages_of, with_import_rules
from tests.support.pages import ROOT


def test_packages_and_what_they_may_import() -> None:
    """One row for each of our packages, with what no contract in pyproject.toml forbids."""
    page = ARCHITECTURE.read_text()
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]

    assert sorted(packages_of(page)) == sorted(linter["root_packages"])
    assert with_import_rules(page) == page, "python -m tests.docs.generated writes it anew"
