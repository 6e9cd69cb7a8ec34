"""docs/architecture.md agrees with the import contracts."""

import tomllib

from tests.docs.import_rules import ARCHITECTURE, packages_of, with_import_rules
from tests.support.pages import ROOT


def test_import_table_is_current() -> None:
    """Each package has a row with the imports allowed by pyproject.toml."""
    page = ARCHITECTURE.read_text()
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]

    assert sorted(packages_of(page)) == sorted(linter["root_packages"])
    assert with_import_rules(page) == page, "python -m tests.docs.generated writes it anew"
