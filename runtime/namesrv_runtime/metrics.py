"""Metrics of objects embedded in an application: declared once, and read at each collection, by two libraries.

A table maps a status to numbers. The libraries are the application's: each is imported at its first use, and the
objects keep no counters for them.

OpenTelemetry's exporter for Prometheus (0.66b2) does not replace `to_prometheus`: it is a beta that needs the whole
SDK, and gives each series three more labels (otel_scope_name, _version, _schema_url).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

S = TypeVar("S")

# a single value, or those by label value or tuple of them
Values: TypeAlias = float | Mapping[Any, float]


@dataclass(frozen=True, slots=True)
class Metric(Generic[S]):
    """One metric: its name, and its value for a status."""

    name: str
    kind: Literal["counter", "gauge"]
    documentation: str
    read: Callable[[S], Values]
    labels: tuple[str, ...] = ()
    unit: Literal["", "seconds"] = ""

    def values(self, status: S) -> Iterator[tuple[tuple[str, ...], float]]:
        """Each value for a status, with the values of the labels."""
        value_or_series = self.read(status)
        for of, value in value_or_series.items() if isinstance(value_or_series, Mapping) else [((), value_or_series)]:
            yield ((of,) if isinstance(of, str) else of), float(value)


@dataclass(frozen=True, slots=True)
class MetricTable(Generic[S]):
    """All metrics of one kind of object; a label distinguishes several such objects in one process."""

    prefix: str
    label: str
    metrics: tuple[Metric[S], ...]

    def to_prometheus(
        self, name: str, status: Callable[[], S], registry: "CollectorRegistry | None" = None
    ) -> Callable[[], None]:
        """Let a registry (None: the default one) read the status with each scrape; the returned function ends that.

        Raises ValueError if an object with this name is registered already.
        """
        from prometheus_client import REGISTRY  # noqa: PLC0415  # the application's, if it has it

        registry = REGISTRY if registry is None else registry
        collector: _Collector[S] | None = _collectors.get((registry, self.prefix))
        if collector is None:
            collector = _Collector(self)
            registry.register(collector)
            _collectors[registry, self.prefix] = collector
        return self._added(collector.statuses, name, status)

    def to_opentelemetry(self, name: str, status: Callable[[], S], meter: "Meter | None" = None) -> Callable[[], None]:
        """Let a meter (None: one of the global provider) observe the status; the returned function ends that.

        Raises ValueError if an object with this name is registered already.
        """
        from opentelemetry.metrics import get_meter  # noqa: PLC0415  # the application's, if it has it

        if meter is None:
            # Kept in a table, since a provider that is set later knows only meters that are referenced.
            meter = _own_meters.setdefault(self.prefix, get_meter(self.prefix))
        observer: _Observer[S] | None = _observers.get((meter, self.prefix))
        if observer is None:
            observer = _observers[meter, self.prefix] = _Observer(self, meter)
        return self._added(observer.statuses, name, status)

    def _added(self, statuses: dict[str, Callable[[], S]], name: str, status: Callable[[], S]) -> Callable[[], None]:
        if name in statuses:
            raise ValueError(f"the metrics of {self.label} {name!r} are exported already")
        statuses[name] = status

        def end() -> None:
            if statuses.get(name) is status:
                del statuses[name]

        return end

    def samples(self, metric: Metric[S], read: Mapping[str, S]) -> Iterator[tuple[tuple[str, ...], float]]:
        """Each value of a metric, with the values of its labels; the object's name comes first."""
        for name, status in read.items():
            for of, value in metric.values(status):
                yield (name, *of), value


def _read(statuses: Mapping[str, Callable[[], S]]) -> dict[str, S]:
    # A copy, because other threads may add and remove objects meanwhile.
    return {name: status() for name, status in dict(statuses).items()}


class _Collector(Generic[S]):
    """The collector that a registry calls with each scrape: one for each table and registry, as names must differ."""

    def __init__(self, table: MetricTable[S]) -> None:
        self._table = table
        self.statuses: dict[str, Callable[[], S]] = {}

    def collect(self) -> Iterator["Family"]:
        """All metrics, of one moment."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415  # see above

        table, read = self._table, _read(self.statuses)
        for metric in table.metrics:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            full_name = "_".join(filter(None, (table.prefix, metric.name, metric.unit)))
            family = kind(full_name, metric.documentation, labels=(table.label, *metric.labels))
            for of, value in table.samples(metric, read):
                family.add_metric(of, value)
            yield family


class _Observer(Generic[S]):
    """The callbacks of OpenTelemetry's instruments, which cannot be removed again.

    All values of one collection are of one moment: the second call of an instrument begins the next collection.
    """

    def __init__(self, table: MetricTable[S], meter: "Meter") -> None:
        self._table = table
        self.statuses: dict[str, Callable[[], S]] = {}
        self._read: dict[str, S] = {}
        # metrics that this reading has served
        self._served: set[str] = set()
        for metric in table.metrics:
            create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            create(
                f"{table.prefix.replace('_', '.', 1)}.{metric.name}",
                [self._observing(metric)],
                unit="s" if metric.unit == "seconds" else "1",
                description=metric.documentation,
            )

    def _observing(self, metric: Metric[S]) -> "Callable[[CallbackOptions], list[Observation]]":
        from opentelemetry.metrics import Observation  # noqa: PLC0415  # see above

        labels = (self._table.label, *metric.labels)

        def observe(_: "CallbackOptions") -> list[Observation]:
            if metric.name in self._served or not self._served:
                self._read = _read(self.statuses)
                self._served.clear()
            self._served.add(metric.name)
            samples = self._table.samples(metric, self._read)
            return [Observation(value, dict(zip(labels, of, strict=True))) for of, value in samples]

        return observe


# the collector or observer of each registry or meter to which metrics were exported
_collectors: Final[dict[tuple[Any, str], _Collector[Any]]] = {}
_observers: Final[dict[tuple[Any, str], _Observer[Any]]] = {}
_own_meters: "Final[dict[str, Meter]]" = {}
