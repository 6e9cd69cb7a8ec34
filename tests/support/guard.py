"""Time limit for what a test waits for."""

from typing import Final

# Nothing that is right takes a hundredth of it, or a tenth on a machine with a load of 20; a test that waits for what
# never comes fails instead of hanging.
GUARD_SECONDS: Final = 300.0
