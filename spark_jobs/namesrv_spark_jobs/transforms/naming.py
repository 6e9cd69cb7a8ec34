"""How do names travel with millions of lines? Joined to one text, which Parquet writes once and then counts.

Who speaks is the same in thousands of lines: a column for each of its names would cost more than all numbers together.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

NAMES: Final = ("nameserver", "boot_id", "cluster", "broker_name", "broker_id", "broker_addr")

# JSON has both as escapes only: a name with one of them is somebody's joke, and is shown cut
_BETWEEN: Final = "\x1f"
_NOTHING: Final = "\x00"


def said() -> Column:
    """The names of a line as one text, `said`."""
    texts = (F.coalesce(F.col(name).cast("string"), F.lit(_NOTHING)) for name in NAMES)
    return F.concat_ws(_BETWEEN, *texts).alias("said")


def names() -> list[Column]:
    """The columns that are in `said`."""
    return [
        _name(number).cast("long" if name == "broker_id" else "string").alias(name) for number, name in enumerate(NAMES)
    ]


def _name(number: int) -> Column:
    return F.nullif(F.get(F.split("said", _BETWEEN), F.lit(number)), F.lit(_NOTHING))
