"""How is a settings error said in plain words?"""

from pydantic import ValidationError


def plain_words(error: ValidationError) -> str:
    """What is wrong, field by field, with the values."""
    problems = []
    for detail in error.errors():
        field = ".".join(str(part) for part in detail["loc"])
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "missing":
            problems.append(f"{field} is missing")
        elif detail["type"] == "extra_forbidden":
            problems.append(f"{field} is no setting")
        else:
            problems.append(f"{field}: {detail['input']!r}: {message[:1].lower()}{message[1:]}")
    return "; ".join(problems)
