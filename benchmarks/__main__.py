"""Benchmarks of the NameServer: `python -m benchmarks [SUITE] [--only NAME ...]`.

The first word chooses a suite: `speed` (the default), `peers`, `abuse`, `soak`, `torture` or `scoreboard`; the options
are those of the suite. Results go to build/benchmarks/; `--write` puts them on a page.
"""

import importlib
import signal
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.servers import end_in_order

# suite -> its module, whose `main` takes the arguments and returns the exit code
SUITES: Final = {
    "speed": "benchmarks.speed.suite",
    "peers": "benchmarks.peers.suite",
    "abuse": "benchmarks.abuse.suite",
    "soak": "benchmarks.soak.suite",
    "torture": "benchmarks.torture.suite",
    "scoreboard": "benchmarks.scoreboard.suite",
}


def main(arguments: Sequence[str]) -> int:
    """Run a suite and return its exit code; 1 when the suite cannot be measured."""
    words = list(arguments)
    if words in (["--help"], ["-h"]):
        print(f"{__doc__}\nOptions of speed:\n")
    suite = words.pop(0) if words and words[0] in SUITES else "speed"
    end_in_order()
    try:
        code: int = importlib.import_module(SUITES[suite]).main(words)
    except (BenchError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
