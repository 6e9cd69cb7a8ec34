"""A process that can start no further thread, as in a container at its limit of processes."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

# more than the address space of a process
_STACK_BYTES = 1 << 62


@contextmanager
def without_new_threads(*, busy_threads: int = 0) -> Iterator[ThreadPoolExecutor]:
    """Within the block, starting a thread fails, and the running loop's executor has no idle thread.

    Yields the executor. It has so many threads that are busy until the block ends, and a place for one more.
    """
    executor, ended = ThreadPoolExecutor(busy_threads + 1), threading.Event()
    for _ in range(busy_threads):
        executor.submit(ended.wait)
    asyncio.get_running_loop().set_default_executor(executor)
    usual = threading.stack_size(_STACK_BYTES)
    try:
        yield executor
    finally:
        threading.stack_size(usual)
        ended.set()


def do_queued_work(executor: ThreadPoolExecutor) -> None:
    """Let the running loop's executor do all work that is queued, and give the loop a new executor."""
    # Starts a thread, if all starts have failed until now.
    executor.submit(threading.current_thread)
    executor.shutdown()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
