"""The base of the settings that programs pass to our libraries."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError

from namesrv_runtime.suggestions import did_you_mean

# settings whose values appear in no error message
_HIDDEN: Final = re.compile("secret|password")


def _path(value: object) -> Path:
    if value == "":
        raise ValueError("empty path")
    try:
        # Path refuses bytes.
        return Path(value)  # type: ignore[arg-type]  # checked by Path
    except TypeError as error:
        raise ValueError("not a path") from error


# The type checker accepts a str or PathLike for such a field; the value of the field is always a Path.
PathArgument = Annotated[str | os.PathLike[str], PlainValidator(_path)]


class CheckedSettings(BaseModel):
    """Immutable settings, checked when they are made.

    The constructor of a subclass raises a ValueError that names each value that is missing, unknown or not allowed.
    """

    # Without `hide_input_in_errors` a traceback would show the input, which may hold a secret.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(_plain_words(error, type(self).model_fields)) from error


def _plain_words(error: ValidationError, known: Iterable[str]) -> str:
    problems = []
    for detail in error.errors():
        field = ".".join(str(part) for part in detail["loc"])
        # pydantic's own message names a class whose name differs between versions of Python.
        message = "not a path" if detail["type"] == "path_type" else detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "missing":
            problems.append(f"missing setting {field}")
        elif detail["type"] == "extra_forbidden":
            problems.append(f"unknown setting {field}{did_you_mean(field, known)}")
        elif field:
            shown = "" if _HIDDEN.search(field) else f" {detail['input']!r}:"
            problems.append(f"{field}:{shown} {message[:1].lower()}{message[1:]}")
        else:
            # The problem concerns the settings as a whole.
            problems.append(message)
    return "; ".join(problems)
