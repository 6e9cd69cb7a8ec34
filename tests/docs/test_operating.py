"""docs/operating.md agrees with the settings."""

from tests.docs.generated import OPERATING, with_settings


def test_settings_table_is_current() -> None:
    """Names, defaults, ranges and meanings are those declared in the code."""
    page = OPERATING.read_text()
    assert with_settings(page) == page, "python -m tests.docs.generated writes it anew"
