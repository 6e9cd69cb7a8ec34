"""How do two directories change places in one step?"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# the kernel, the C library or the file system does not know how
_UNABLE: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})


def exchange(left: Path, right: Path) -> bool:
    """Let each have the other's name, with no moment in which either has none; False where that cannot be done.

    Raises:
        OSError: it could be done here, but failed.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    names = os.fsencode(left), os.fsencode(right)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNABLE:
        return False
    raise OSError(code, os.strerror(code), str(left), None, str(right))
