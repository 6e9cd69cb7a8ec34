"""The entry point of `namesrvctl`."""

import sys
import traceback
from collections.abc import Sequence
from typing import Final

from namesrv_client.ctl import PROGRAM, exit_codes

# what the extra `ctl` brings
_EXTRA: Final = frozenset({"rich", "typer", "yaml"})


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say; the exit code."""
    try:
        from namesrv_client.ctl.app import app  # noqa: PLC0415  # installed with the extra only
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(f"{PROGRAM}: {error.name} is not installed; pip install 'namesrv[ctl]' brings it\n")
        return exit_codes.USAGE
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that cannot show a character shows its number
            stream.reconfigure(errors="backslashreplace")
    try:
        app(args=None if argv is None else list(argv), prog_name=PROGRAM)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else exit_codes.OK
    except Exception:  # noqa: BLE001 - the outermost boundary; nothing is hidden
        traceback.print_exc()
        return exit_codes.BUG
    return exit_codes.OK
