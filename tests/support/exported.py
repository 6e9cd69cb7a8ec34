"""Metrics as Prometheus and OpenTelemetry export them, as comparable lines."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest


def scraped(registry: CollectorRegistry) -> list[str]:
    """Each sample in Prometheus' text format, sorted."""
    return sorted(line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#"))


class OpenTelemetry:
    """A meter whose values can be read."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader])
        self.meter = self._provider.get_meter("an application")

    def collected(self) -> list[str]:
        """Each value as OpenTelemetry's Prometheus exporter would show it."""
        data = self._reader.get_metrics_data()
        lines = []
        for resource in () if data is None else data.resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                name = metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")
                name += "_total" if getattr(metric.data, "is_monotonic", False) else ""
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    labels = ",".join(f'{key}="{value!s}"' for key, value in sorted((point.attributes or {}).items()))
                    lines.append(f"{name}{{{labels}}} {point.value}")
        return sorted(lines)

    def close(self) -> None:
        """Shut the provider down."""
        self._provider.shutdown()
