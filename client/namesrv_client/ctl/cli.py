"""The entry point of `namesrvctl`."""

import sys
import traceback
from collections.abc import Sequence
from typing import Final

from namesrv_client.ctl import PROGRAM, ExitCode
from namesrv_runtime.program import not_installed

# Packages that the wheel `namesrv-ctl` requires.
_REQUIRED: Final = frozenset({"rich", "typer", "yaml"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of the arguments; returns the exit code."""
    try:
        from namesrv_client.ctl.app import app  # noqa: PLC0415  # its packages may not be installed

        app(args=None if argv is None else list(argv), prog_name=PROGRAM)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the outermost boundary, which prints every error
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing in _REQUIRED:
            sys.stderr.write(f"{PROGRAM}: {not_installed(missing, 'namesrv-ctl')}\n")
            return ExitCode.USAGE
        traceback.print_exc()
        return ExitCode.BUG
    return ExitCode.OK
