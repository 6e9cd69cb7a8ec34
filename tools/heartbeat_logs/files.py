"""Files of the log: one for each hour and each 64 MiB, as docs/heartbeat-log.md defines."""

import gzip
import io
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tools.heartbeat_logs.boots import Boot
from tools.heartbeat_logs.settings import HOUR, SECOND

MOST_BYTES: Final = 64 * 1024 * 1024
# Much faster than the default level, and the files of such similar lines are hardly larger.
GZIP_LEVEL: Final = 1


class Files:
    """The files of one boot below a directory, as a context manager."""

    def __init__(self, directory: Path, boot: Boot, nameserver: str) -> None:
        self._directory = directory
        self._boot = boot
        self._nameserver = nameserver
        self._count = 0
        self._hour = -1
        self._size = 0
        self._path = directory
        self._file: io.BufferedIOBase | None = None
        # The raw file below the compressing one.
        self._raw: io.BufferedIOBase | None = None

    def __repr__(self) -> str:
        return f"<Files [{self._path} | {self._size} bytes]>"

    def begin(self, at: int) -> bool:
        """Open the file for lines from this time on; True if it is a new one."""
        hour = at // HOUR
        if hour == self._hour and self._size < MOST_BYTES:
            return False
        self.close()
        self._hour, self._size = hour, 0
        self._count += 1
        moment = datetime.fromtimestamp(at // SECOND, UTC)
        name = f"{self._nameserver}-{self._boot.boot_id}-{self._count}.jsonl.gz"
        self._path = self._directory / f"dt={moment:%Y-%m-%d}" / f"hour={moment:%H}" / name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Without time and name in the header, equal lines make equal bytes.
        self._raw = self._path.open("wb")
        self._file = gzip.GzipFile("", "wb", GZIP_LEVEL, self._raw, mtime=0)
        return True

    def write(self, lines: list[str]) -> None:
        """Append lines."""
        assert self._file is not None  # noqa: S101 - begin() comes first
        data = "".join(lines).encode()
        self._size += len(data)
        self._file.write(data)

    def close(self) -> None:
        """Close the file, which is complete."""
        if self._file is None:
            return
        self._file.close()
        if self._raw is not None:
            self._raw.close()
        self._file = None

    def tear(self, *, leave_open: bool) -> None:
        """End as by a crash: amid a line, and with the suffix of an open file unless the next boot has closed it."""
        if self._file is None:
            return
        self.close()
        data = gzip.decompress(self._path.read_bytes()).rstrip(b"\n")
        torn = data[: data.rfind(b"\n") + 1 + (len(data) - data.rfind(b"\n")) // 2]
        if leave_open:
            opened = self._path.with_name(self._path.name.removesuffix(".gz").replace(".jsonl", ".jsonl.open"))
            opened.write_bytes(torn)
            self._path.unlink()
        else:
            self._path.write_bytes(gzip.compress(torn, GZIP_LEVEL, mtime=0))

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        """Close the open file."""
        self.close()
