"""What the daemon does to its process before it starts: the lock of its data directory, the garbage collector."""

import fcntl
import gc
import os
from pathlib import Path


class StartError(Exception):
    """The daemon cannot start; the message is for the operator."""


def lock_data_dir(data_dir: Path) -> int:
    """Make the data directory ours: two servers in one would overwrite each other's files.

    The descriptor that holds it; to close it is to give the directory back.

    Raises:
        StartError: it cannot be made, or another server has it.
    """
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"data directory {data_dir}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StartError(f"data directory {data_dir} is in use by another namesrv") from error
    return lock


def settle_garbage_collector() -> None:
    """Keep the cycle collector from stopping the loop.

    What was loaded until now stays for ever and is not looked at again. The tables hold untracked values, so that a
    full collection is short; it is asked for rarely all the same.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
