"""The entry point of `namesrvctl`."""

import sys
import traceback
from collections.abc import Sequence
from typing import Final

from namesrv_client.ctl import PROGRAM, ExitCode

# what the extra `ctl` brings
_EXTRA: Final = frozenset({"rich", "typer", "yaml"})


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit code."""
    try:
        from namesrv_client.ctl.app import app  # noqa: PLC0415  # installed with the extra only

        app(args=None if argv is None else list(argv), prog_name=PROGRAM)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the outermost boundary; nothing is hidden
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing in _EXTRA:
            sys.stderr.write(f"{PROGRAM}: {missing} is not installed; pip install 'namesrv[ctl]' brings it\n")
            return ExitCode.USAGE
        traceback.print_exc()
        return ExitCode.BUG
    return ExitCode.OK
