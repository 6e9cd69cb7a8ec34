"""Starts and stops rocketmq-rust's NameServer: built from its crate, or from a program that is handed in."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.fetching import AbsentError, crate_program
from benchmarks.peers.rocketmq import NameServer, is_answering, name_server
from benchmarks.peers.starting import Program, answering, data_directory, free_port
from benchmarks.rounds import Bench

VERSION: Final = "1.0.0"
_CRATE: Final = "rocketmq-namesrv"
_PROGRAM: Final = "rocketmq-namesrv-rust"


def program(bench: Bench, given: Path | None) -> Path:
    """The one that is handed in, or the crate's.

    Raises:
        AbsentError: it cannot be had.
    """
    if given is None:
        return crate_program(bench, _CRATE, VERSION, _PROGRAM)
    if not given.is_file():
        raise AbsentError(f"rocketmq-rust: no program {given}")
    return given.resolve()


@contextmanager
def rust(bench: Bench, program: Path) -> Iterator[NameServer]:
    """rocketmq-rust's NameServer with nothing on disk, until the block ends."""
    port = free_port()
    with data_directory("rust") as home:
        command = [
            *(str(program), "--listenPort", str(port), "--bindAddress", "127.0.0.1"),
            *("--rocketmqHome", str(home), "--kvConfigPath", str(home / "kv.json")),
        ]
        with (
            answering(bench, Program("rocketmq-rust", command, port, is_answering, home)) as server,
            name_server(bench, server) as asked,
        ):
            yield asked
