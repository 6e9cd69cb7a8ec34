"""The base of the settings that programs pass to our libraries."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class CheckedSettings(BaseModel):
    """Values that are checked when they are made, and never change.

    Subclasses have the typed constructor of their fields; it raises a ValueError that names each value that is missing,
    unknown or not allowed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
            problems.append(f"{field}: {detail['input']!r}: {message[:1].lower()}{message[1:]}")
        else:
            # of the settings as a whole
            problems.append(message)
    return "; ".join(problems)
