"""The name tables on the first pages of the APIs, generated from their mkdocs directives."""

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from tests.support.pages import ROOT

PAGES: Final = tuple(sorted((ROOT / "docs" / "api").glob("*.md")))
BEGIN: Final = "<!-- names: begin, written by `python -m tests.docs.generated` -->\n"
END: Final = "<!-- names: end -->\n"
# A directive `::: module.or.class`, with its options up to the next line without indentation.
_DIRECTIVE: Final = re.compile(r"^::: (\S+)\n((?:[ ]+.*\n)*)", re.MULTILINE)
_MEMBERS: Final = re.compile(r"^ +members: \[(.*)\]$", re.MULTILINE)
# The options of a class that is documented by its methods.
_VERBS: Final = ("BrokerAgent", "RouteClient", "RemotingClient", "TestNameServer", "TestBroker", "TestClock")


def with_names(page: str) -> str:
    """The page with current tables of names."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    found = [shown for directive in _DIRECTIVE.finditer(after) for shown in _named(directive[1], directive[2])]
    head = "| name | import from | is |\n|---|---|---|\n"
    rows = "".join(f"| `{name}` | `{module}` | {_is(value)} |\n" for name, module, value in found)
    classes = {name: value for name, _, value in found if name in _VERBS}
    verbs = "".join(f"\n| `{name}` | |\n|---|---|\n{_verbs(value)}" for name, value in classes.items())
    return f"{before}{BEGIN}\n{head}{rows}{verbs}\n{END}{after}"


def _named(path: str, options: str) -> Iterator[tuple[str, str, Any]]:
    """(name, module to import it from, value) for each name of a directive."""
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError:
        place, _, name = path.rpartition(".")
        yield name, place, getattr(importlib.import_module(place), name)
        return
    for name in _public(module, options):
        yield name, path, getattr(module, name)


def _public(module: ModuleType, options: str) -> list[str]:
    if members := _MEMBERS.search(options):
        return [name.strip() for name in members[1].split(",")]
    if hasattr(module, "__all__"):
        return list(module.__all__)
    ours = inspect.getmembers(module, lambda it: getattr(it, "__module__", None) == module.__name__)
    return [name for name, _ in ours if not name.startswith("_")]


def _is(value: object) -> str:
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return f"`{value!r}`"
    return _first_sentence(value)


def _first_sentence(value: object) -> str:
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0].replace("|", "\\|")


def _verbs(of: type) -> str:
    """Public methods and properties of a class and its parents, in order."""
    names = dict.fromkeys(name for base in of.__mro__ if base.__module__.startswith("namesrv") for name in vars(base))
    shown = {name: value for name in names if not name.startswith("_") and _is_ours(value := getattr(of, name))}
    return "".join(
        f"| `{name if isinstance(value, property) else _call(name, value)}` | {_first_sentence(value)} |\n"
        for name, value in shown.items()
    )


def _is_ours(member: object) -> bool:
    """True for properties, and for methods of our own packages."""
    is_method = inspect.isroutine(member) and str(member.__module__).startswith("namesrv")
    return is_method or isinstance(member, property)


def _call(name: str, method: Any) -> str:
    parameters = [each for each in inspect.signature(method).parameters.values() if each.name != "self"]
    return f"{name}({', '.join(map(_argument, parameters))})"


def _argument(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}=…"
