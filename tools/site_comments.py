"""What the API pages say of attributes: the comment above a field, and, of a blocking verb, which one it is of."""

import re
from pathlib import Path
from typing import Any, Final

import griffe

_VERB: Final = re.compile(r"(?:waited|direct)\((\w+)\.(\w+)\)")


class Comments(griffe.Extension):
    """Fields are commented, not documented, in our sources; readers of the API need the comments all the same."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Give an attribute without a docstring one."""
        verb = _VERB.fullmatch(str(attr.value))
        if verb is not None and attr.parent is not None:
            owner, name = verb.groups()
            text = f"As [`{owner}.{name}`][{attr.parent.resolve(owner)}.{name}], for threads."
        else:
            text = _comment_above(attr)
        if text and attr.docstring is None:
            attr.docstring = griffe.Docstring(text, parent=attr)
        # of each field, and nothing that a reader would want to know
        attr.labels -= {"class-attribute", "instance-attribute", "module-attribute"}

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Leave out what Python calls, unless its docstring says something; `__init__` is shown with its class."""
        unsaid = [name for name, member in cls.members.items() if name.startswith("__") and not member.has_docstring]
        for name in {*unsaid} - {"__init__"}:
            cls.del_member(name)


def _comment_above(attr: griffe.Attribute) -> str:
    lines: list[str] = []
    source, at = attr.lines_collection[Path(str(attr.filepath))], (attr.lineno or 1) - 2
    while at >= 0 and source[at].lstrip().startswith("# "):
        lines.insert(0, source[at].lstrip("# ").strip())
        at -= 1
    text = " ".join(lines)
    return text and f"{text[0].upper()}{text[1:].rstrip('.')}."
