"""Acknowledged problems: who looks after each, until when and why; kept in a file, so that a restart forgets none."""

import asyncio
import fcntl
import json
import logging
from collections.abc import Collection, Iterable
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from namesrv_client.health import Problem
from namesrv_console.views.differences import Disagreement, lacking_servers
from namesrv_remoting.health import Kind
from namesrv_runtime.durable_file import file_stamp, write_atomically
from namesrv_runtime.log import event
from namesrv_runtime.threads import in_thread

logger: Final = logging.getLogger(__name__)

# More problems than a page can list; a further acknowledgement replaces the one that ends first.
_MOST: Final = 1000
_MAX_FILE_BYTES: Final = 8 * 1024 * 1024
# The digests of so many differences take 2 MB of the file.
_MAX_EXTENT: Final = 100_000


class Acknowledgement(msgspec.Struct, frozen=True):
    """One acknowledged problem."""

    kind: Kind
    subject: str
    account: str
    why: str
    # Seconds since 1970.
    until: float
    # The extent of the problem at the acknowledgement; empty for a problem without one.
    extent: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[Kind, str]:
        """The identity of the problem."""
        return self.kind, self.subject

    def covers(self, extent: frozenset[str]) -> bool:
        """True if a problem of this extent has no server, cause or difference that the acknowledged one lacks."""
        return extent <= self.extent


def extent_of(problem: Problem, disagreements: Iterable[Disagreement]) -> frozenset[str]:
    """The servers and causes of a problem; for a `disagreement`, digests of the differences."""
    if problem.kind != "disagreement":
        return frozenset((*problem.servers, *problem.causes))
    digests = (_digest(one) for one in disagreements if one.reason is None and not one.is_missing_broker)
    # Differences beyond the bound alarm again at once.
    return frozenset(islice(digests, _MAX_EXTENT))


def digest_of(texts: Iterable[str]) -> str:
    """A short text that differs for different texts."""
    # JSON, since a name may contain any character, also a separator or half a character.
    return blake2b(json.dumps([*texts]).encode(), digest_size=8).hexdigest()


def _digest(disagreement: Disagreement) -> str:
    """A short text for a difference, and for the servers that lack the thing."""
    one = disagreement.difference
    return digest_of((one.kind, one.name, str(one.fact), *sorted(lacking_servers(one))))


_Known = dict[tuple[Kind, str], Acknowledgement]


class Acknowledgements:
    """The acknowledged problems; each ends with its time or with its problem."""

    def __init__(self, directory: Path | None, servers: Iterable[str]) -> None:
        # None: the console has no directory, so that a restart ends all acknowledgements. Consoles of other servers,
        # whose groups may have the same names, have files of their own in the directory.
        self._path = None if directory is None else directory / f"acknowledged-{digest_of(sorted(servers))}.json"
        # The acknowledgements in the file, and the stamp of the file that was read last.
        self._known: _Known = {}
        self._stamp: tuple[int, ...] | None = None
        # Acknowledgements that have ended, although the file may still have them.
        self._ended: _Known = {}
        # Held during a change, whose end clears `_ended`: no other change may add to `_ended` meanwhile.
        self._changing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Acknowledgements [{len(self._known)} in {self._path or 'memory'}]>"

    def at(self, wall: float) -> _Known:
        """The acknowledgements that have not ended, by the key of the problem."""
        self._renew()
        return {key: one for key, one in self._lasting(self._known).items() if one.until > wall}

    async def add(self, acknowledgement: Acknowledgement) -> None:
        """Acknowledge a problem. Raises OSError if the file cannot be written; then nothing has changed."""
        async with self._changing:
            await self._change(acknowledgement)

    async def remove(self, keys: Collection[tuple[Kind, str]]) -> None:
        """End the acknowledgements of these problems. Raises OSError if a restart would bring them back."""
        async with self._changing:
            self._renew()
            if ended := self._lasting(self._known).keys() & set(keys):
                self._ended |= {key: self._known[key] for key in ended}
                await self._change()

    async def _change(self, *added: Acknowledgement) -> None:
        if self._path is None:
            self._known = self._changed(added)
        else:
            await in_thread(self._write, self._path, added)
            self._renew()
        self._ended.clear()

    def _write(self, path: Path, added: Iterable[Acknowledgement]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("wb") as lock:
            # Another console of the same servers reads and writes the file either before or after.
            fcntl.flock(lock, fcntl.LOCK_EX)
            write_atomically(path, msgspec.json.encode([*self._changed(added).values()]))

    def _changed(self, added: Iterable[Acknowledgement]) -> _Known:
        """The acknowledgements without those that have ended, and with another one."""
        known = self._lasting(self._read()) | {one.key: one for one in added}
        if len(known) > _MOST:
            del known[min(known, key=lambda key: known[key].until)]
        return known

    def _lasting(self, known: _Known) -> _Known:
        """The acknowledgements that have not ended; another console may have made a new one of the same problem."""
        return {key: one for key, one in known.items() if self._ended.get(key) != one}

    def _renew(self) -> None:
        """Take over a change of the file, which may be that of another console of the same servers."""
        if self._path is not None and (stamp := file_stamp(self._path)) != self._stamp:
            self._stamp = stamp
            self._known = self._read()

    def _read(self) -> _Known:
        """The acknowledgements in the file; without a readable file, the known ones."""
        if self._path is None:
            return self._known
        try:
            with self._path.open("rb") as file:
                found = msgspec.json.decode(file.read(_MAX_FILE_BYTES), type=list[Acknowledgement])
        except FileNotFoundError:
            return self._known
        except (OSError, msgspec.DecodeError) as error:
            event(logger, logging.WARNING, "acknowledgements_not_read", file=self._path, error=str(error))
            return self._known
        return {acknowledgement.key: acknowledgement for acknowledgement in found}
