"""The base of the settings that programs pass to our libraries."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError

# settings whose values are told to nobody
_HIDDEN: Final = re.compile("secret|password")


def _path(value: object) -> Path:
    try:
        # bytes are no path here
        return Path(value)  # type: ignore[arg-type]  # checked by Path
    except TypeError as error:
        raise ValueError("not a path") from error


# A path as callers write it, which is what type checkers know of a field; its value is always a Path.
PathArgument = Annotated[str | os.PathLike[str], PlainValidator(_path)]


class CheckedSettings(BaseModel):
    """Values that are checked when they are made, and never change.

    Subclasses have the typed constructor of their fields; it raises a ValueError that names each value that is missing,
    unknown or not allowed.
    """

    # the input, which may hold a secret, is in a traceback otherwise
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(_plain_words(error)) from error


def _plain_words(error: ValidationError) -> str:
    problems = []
    for detail in error.errors():
        field = ".".join(str(part) for part in detail["loc"])
        # pydantic's words name the class, which has another name with each version of Python
        message = "not a path" if detail["type"] == "path_type" else detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "missing":
            problems.append(f"missing setting {field}")
        elif detail["type"] == "extra_forbidden":
            problems.append(f"unknown setting {field}")
        elif field:
            shown = "" if _HIDDEN.search(field) else f" {detail['input']!r}:"
            problems.append(f"{field}:{shown} {message[:1].lower()}{message[1:]}")
        else:
            # of the settings as a whole
            problems.append(message)
    return "; ".join(problems)
