"""The version of the daemon."""

import subprocess
import sys
from pathlib import Path

import namesrv


def test_version_without_a_distribution() -> None:
    """A source tree without a distribution has the version "(not installed)"."""
    source = Path(namesrv.__file__).parent.parent
    script = "import sys; sys.path.insert(0, sys.argv[1]); from namesrv import version; print(version())"

    # isolated and without site-packages
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, source], capture_output=True, text=True, check=True
    )

    assert found.stdout == "(not installed)\n"
