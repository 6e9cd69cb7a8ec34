"""How long may a test wait for what should come?"""

from typing import Final

# Nothing that is right takes a tenth of it, on a machine of its own; a test that waits for what never comes fails
# instead of hanging.
GUARD_SECONDS: Final = 120.0
