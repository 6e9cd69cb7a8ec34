"""The DataFrame API that transforms are written against: PySpark's, of whichever engine runs them.

`F`, `W`, `Column` and `DataFrame` are PySpark's to whoever reads or checks the code. When it runs, `F` and `W` are
those of the engine that is in use, so that the embedded engine needs neither Java nor PySpark.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import Window as W  # noqa: N817 - as everyone calls it
    from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

__all__ = ["Column", "DataFrame", "Dialect", "F", "W", "written_in"]


class Dialect(Protocol):
    """Where an engine has what PySpark has in `pyspark.sql`."""

    @property
    def functions(self) -> Any:
        """As `pyspark.sql.functions`."""

    @property
    def window(self) -> Any:
        """As `pyspark.sql.Window`."""


_IN_USE: Final[ContextVar[Dialect]] = ContextVar("engine")


@contextmanager
def written_in(dialect: Dialect) -> Iterator[None]:
    """Transforms that are called inside make tables of this engine."""
    token = _IN_USE.set(dialect)
    try:
        yield
    finally:
        _IN_USE.reset(token)


class _InUse:
    """Has what a part of the engine in use has."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_IN_USE.get(), self._part), name)


if not TYPE_CHECKING:
    # names for annotations
    Column = DataFrame = Any
    F = _InUse("functions")
    W = _InUse("window")
