"""The daemon's version."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import namesrv
from namesrv import version


def test_version_is_that_of_the_distribution() -> None:
    """What is installed, not what a file says."""
    assert metadata.version("namesrv") == version()


def test_version_of_what_is_not_installed() -> None:
    """A source tree on the path, without a distribution."""
    source = Path(namesrv.__file__).parent.parent
    script = "import sys; sys.path.insert(0, sys.argv[1]); from namesrv import version; print(version())"

    # isolated and without site-packages
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, source], capture_output=True, text=True, check=True
    )

    assert found.stdout == "(not installed)\n"
