"""Regular expressions mean the same in every Python from 3.11.0 on."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import namesrv
import namesrv_remoting


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """All patterns that modules of the server and of the protocols define, with their names."""
    for package in (namesrv, namesrv_remoting):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                values = vars(importlib.import_module(found.name))
                yield from ((f"{found.name}.{k}", v) for k, v in values.items() if isinstance(v, re.Pattern))


def has_possessive_group(parsed: Any) -> bool:
    """True if a group, or anything else than one character of a set, is repeated possessively."""
    if isinstance(parsed, _parser.SubPattern):
        return any(has_possessive_group(part) for part in parsed)
    if not isinstance(parsed, tuple | list):
        return False
    if parsed and parsed[0] is _constants.POSSESSIVE_REPEAT:
        [*_, repeated] = parsed[1]
        return len(repeated) != 1 or repeated.getwidth()[1] != 1
    return any(map(has_possessive_group, parsed))


def test_no_group_is_repeated_possessively() -> None:
    """Before Python 3.11.5 such a repeat takes too much text (python/cpython#106052)."""
    named = dict(patterns())
    assert len(named) > 20
    assert [name for name, p in named.items() if has_possessive_group(_parser.parse(p.pattern, p.flags))] == []
