"""docs/security.md says what the server does: its access files are read, its tables are those of the code."""

import re
import tomllib

import pytest

from namesrv.settings.model import Settings
from namesrv_remoting.access import CODES, GRANTABLE, AccessClass, parse_access_file
from tests.namesrv.access.test_attacks import ATTACKS
from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", BLOCKS)
def test_files_are_good(text: str) -> None:
    """Each access file is one, and each settings file has settings."""
    if "[accounts." in text:
        assert parse_access_file(text).accounts
    else:
        Settings.model_validate(tomllib.loads(text))


def test_classes_are_those_of_the_table() -> None:
    """Every code, in the class that it is in."""
    for name, access_class in [*((str(each), each) for each in GRANTABLE), ("any account", AccessClass.ANY_ACCOUNT)]:
        [cell] = re.findall(rf"^\| `?{name}`? \| ([\d, ]+) \|", PAGE, re.MULTILINE)
        expected = sorted(int(code) for code, about in CODES.items() if about.access_class is access_class)
        assert expected == [int(code) for code in cell.split(",")]


def test_every_attack_is_named() -> None:
    """What an open server allows is what was done to one."""
    section = PAGE.partition("## What an open server allows")[2].partition("\n## ")[0]
    lines = [line[2:] for line in section.splitlines() if line.startswith("- ")]
    told = [
        part
        for line in lines
        for part in re.split(r", (?=list|create|read)", re.split(r"[:;]|, (?=and|which)", line)[0])
    ]
    assert sorted(ATTACKS) == sorted(told)
