"""The command `namesrv`: it reads settings and returns an exit code."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

from namesrv import version
from namesrv.server import freed_memory
from namesrv.settings.flags import Action, help_text, parse
from namesrv.settings.sources import Loaded, SettingsError, config_table, load
from namesrv_runtime import log

EXIT_OK = 0
EXIT_USAGE = 2

_logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon, or perform another action that the arguments request."""
    line = parse(sys.argv[1:] if argv is None else argv)
    if line.action is Action.HELP:
        return _print(help_text())
    if line.action is Action.VERSION:
        return _print(f"namesrv {version()}\n")
    try:
        loaded = load(line, os.environ)
    except SettingsError as error:
        _complain(error.problems)
        return EXIT_USAGE
    if line.action is Action.RUN:
        return _run(loaded, partial(load, line, os.environ))
    _complain([f"warning: {warning}" for warning in loaded.warnings])
    return _print(config_table(loaded) if line.action is Action.PRINT_CONFIG else "configuration is valid\n")


def _run(loaded: Loaded, read_again: Callable[[], Loaded]) -> int:
    # The log starts the first thread.
    freed_memory.use_one_heap()
    log.configure(loaded.settings.log_level, loaded.settings.log_format)
    for warning in loaded.warnings:
        log.event(_logger, logging.WARNING, "settings_warning", warning=warning)
    from namesrv.server.controller import run  # noqa: PLC0415  # the import loads the event loop, which --help does not need

    return run(loaded, read_again)


def _complain(lines: Sequence[str]) -> None:
    sys.stderr.write("".join(f"namesrv: {line}\n" for line in lines))


def _print(text: str) -> int:
    sys.stdout.write(text)
    return EXIT_OK
