"""HTTP client for tests, and a parser of metrics."""

import http.client
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.support.fake_clock import GUARD_SECONDS


class HttpResponse(NamedTuple):
    """An HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Scrape:
    """The metrics of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        # family -> (type, help)
        self.families: dict[str, tuple[str, str]] = {}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            assert family.name not in self.families, f"{family.name} twice"
            self.families[family.name] = (family.type, family.documentation)
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self._samples, f"{key} twice"
                self._samples[key] = sample.value

    def __call__(self, name: str, /, **labels: str) -> float:
        """The sample with this name and exactly these labels (`class_` is class); 0 when it does not exist yet."""
        return self._samples.get((name, _labels(labels)), 0.0)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._samples}

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for known, labels in self._samples if known == name]


def ask(address: tuple[str, int], target: str, method: str = "GET") -> HttpResponse:
    """Send one request over a new connection."""
    with closing(http.client.HTTPConnection(*address, timeout=GUARD_SECONDS)) as connection:
        connection.request(method, target)
        answer = connection.getresponse()
        return HttpResponse(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


def scrape(address: tuple[str, int]) -> Scrape:
    """The current metrics."""
    answer = ask(address, "/metrics")
    assert answer.status == 200, answer
    return Scrape(answer.text)


def _labels(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name.rstrip("_"), value) for name, value in labels.items())
