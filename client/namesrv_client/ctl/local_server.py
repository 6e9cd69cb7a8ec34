"""The data directory of a server on this machine, found by the open files of its process."""

from pathlib import Path

from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.running import connected
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.bodies.extensions import ServerInfo
from namesrv_runtime import loops

# A file in the data directory that a server keeps open while it runs.
_LOCK = "lock"


def running_data_dir(options: Options) -> tuple[str, Path] | None:
    """The first server on this machine whose open files this user may see, and its data directory.

    A server does not send its directory, since every peer may send it a request; Linux shows the open files of a
    process to its owner.
    """

    async def ask() -> tuple[str, Path] | None:
        async with connected(options) as servers:
            return await _first(servers)

    return loops.run(ask)


async def _first(servers: Servers) -> tuple[str, Path] | None:
    responses = await servers.ask(NameServer.info)
    found = ((server, _data_dir(info)) for server, info in responses.given.items() if info is not None)
    return next(((server, directory) for server, directory in found if directory is not None), None)


def _data_dir(info: ServerInfo) -> Path | None:
    """The data directory, unless the pid belongs to another process.

    The names of a server's log files contain its boot id.
    """
    paths = _open_files(info.pid)
    if not any(info.boot_id in path.name for path in paths):
        return None
    return next((path.parent for path in paths if path.name == _LOCK), None)


def _open_files(pid: int | None) -> list[Path]:
    """The open files of a process; empty without Linux's /proc, and for another account's process."""
    try:
        return [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []
