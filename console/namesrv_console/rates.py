"""The traffic of each server during the last quarter of an hour, sampled from its reports."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from namesrv_console.poller import Observed
from namesrv_console.views.rates import Sample
from namesrv_runtime.clock import Clock

SAMPLE_SECONDS: Final = 5.0
# Samples of a quarter of an hour, and the one before it, since a rate needs two.
MAX_SAMPLES: Final = 181


class Rates:
    """The last samples of each server; their number is bounded."""

    def __init__(self, observed: Observed, clock: Clock) -> None:
        self._observed = observed
        self._clock = clock
        self._samples: dict[str, deque[Sample]] = {
            view.address: deque(maxlen=MAX_SAMPLES) for view in observed.cluster.servers
        }
        # True if a page shows the newest samples; without such a page nothing that is shown changes
        self._is_shown = False

    def __repr__(self) -> str:
        return f"<Rates [{sum(map(len, self._samples.values()))} samples of {len(self._samples)} servers]>"

    def shown(self) -> Mapping[str, Sequence[Sample]]:
        """Address -> samples, oldest first, for an open page, which is filled anew after the next sample."""
        self._is_shown = True
        return self._samples

    async def run(self) -> NoReturn:
        """Take samples until cancelled."""
        while True:
            await self._clock.sleep(SAMPLE_SECONDS)
            for view in self._observed.cluster.servers:
                if sample := Sample.of(view):
                    self._samples[view.address].append(sample)
            # Without a new sample the values of a server become unknown, and the charts move on.
            if self._is_shown:
                self._is_shown = False
                self._observed.renew()
