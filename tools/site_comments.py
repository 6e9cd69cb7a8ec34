"""Adds comments to the API pages: the comment above a field, and for a blocking method the name of the original."""

import re
from pathlib import Path
from typing import Any, Final

import griffe

_VERB: Final = re.compile(r"(?:waited|direct)\((\w+)\.(\w+)\)")


class Comments(griffe.Extension):
    """Uses the comments of fields as their docstrings, since our sources document fields by comments."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Add a docstring to an attribute without one."""
        verb = _VERB.fullmatch(str(attr.value))
        if verb is not None and attr.parent is not None:
            owner, name = verb.groups()
            text = f"As [`{owner}.{name}`][{attr.parent.resolve(owner)}.{name}], for threads."
        else:
            text = _comment_above(attr)
        if text and attr.docstring is None:
            attr.docstring = griffe.Docstring(text, parent=attr)
        # Every field has these labels, which do not help a reader.
        attr.labels -= {"class-attribute", "instance-attribute", "module-attribute"}

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Leave out special methods without a docstring; `__init__` is shown with its class."""
        special = [(name, member) for name, member in cls.members.items() if name.startswith("__")]
        undocumented = {name for name, member in special if not member.has_docstring}
        for name in undocumented - {"__init__"}:
            cls.del_member(name)


def _comment_above(attr: griffe.Attribute) -> str:
    lines: list[str] = []
    source, at = attr.lines_collection[Path(str(attr.filepath))], (attr.lineno or 1) - 2
    while at >= 0 and source[at].lstrip().startswith("# "):
        lines.insert(0, source[at].lstrip("# ").strip())
        at -= 1
    text = " ".join(lines)
    return text and f"{text[0].upper()}{text[1:].rstrip('.')}."
