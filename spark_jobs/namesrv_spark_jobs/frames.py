"""The DataFrame API that transforms are written against: PySpark's, provided by the engine that runs them.

To type checkers, `F`, `W`, `Column` and `DataFrame` are PySpark's. At run time `F` and `W` are those of the engine in
use, so that the embedded engine needs neither Java nor PySpark.
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
    """An engine's counterparts of modules and classes in `pyspark.sql`."""

    @property
    def functions(self) -> Any:
        """The counterpart of `pyspark.sql.functions`."""

    @property
    def window(self) -> Any:
        """The counterpart of `pyspark.sql.Window`."""


_IN_USE: Final[ContextVar[Dialect]] = ContextVar("engine")


@contextmanager
def written_in(dialect: Dialect) -> Iterator[None]:
    """Context in which transforms make tables of this engine."""
    token = _IN_USE.set(dialect)
    try:
        yield
    finally:
        _IN_USE.reset(token)


class _InUse:
    """Proxy for one attribute (`functions` or `window`) of the engine in use."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_IN_USE.get(), self._part), name)


if not TYPE_CHECKING:
    # at run time, Column and DataFrame are only names in annotations
    Column = DataFrame = Any
    F = _InUse("functions")
    W = _InUse("window")
