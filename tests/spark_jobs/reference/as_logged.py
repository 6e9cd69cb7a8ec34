"""Whether the replay under the logged settings gives the logged evictions, each at the same scan."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.lives import lines_of_brokers
from tests.spark_jobs.reference.replay import Eviction

# boot, cluster, address, number of the life there
LifeKey = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class AsLogged:
    """Which lives were ended as silent by which scans, in the log and in the replay."""

    logged: Counter[tuple[LifeKey, int | None]]
    replayed: Counter[tuple[LifeKey, int | None]]

    @property
    def is_exact(self) -> bool:
        """The same brokers at the same scans."""
        return self.logged == self.replayed

    def numbers(self) -> dict[str, int | bool]:
        """How many there are, and how many of them differ; of one life, one of each kind are one at another scan."""
        missing = Counter(life for life, _ in (self.logged - self.replayed).elements())
        extra = Counter(life for life, _ in (self.replayed - self.logged).elements())
        other_scan = (missing & extra).total()
        return {
            "logged": self.logged.total(),
            "replayed": self.replayed.total(),
            "missing": missing.total() - other_scan,
            "extra": extra.total() - other_scan,
            "other_scan": other_scan,
            "exact": self.is_exact,
        }


def as_logged(boots: Sequence[Boot], replayed: Iterable[Eviction]) -> AsLogged:
    """Both sides."""
    found = (((eviction.boot.boot, *eviction.key, eviction.life), eviction.scan) for eviction in replayed)
    return AsLogged(Counter(one for boot in boots for one in _logged(boot)), Counter(found))


def _logged(boot: Boot) -> Iterator[tuple[LifeKey, int | None]]:
    for key, lines in lines_of_brokers(boot).items():
        for life, evict in enumerate(line for line in lines if line.event == "evict"):
            if evict.get("reason") == "silent":
                yield (boot.boot, *key, life), evict.get("scan")
