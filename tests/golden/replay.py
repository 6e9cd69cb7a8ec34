"""Replays recorded requests and compares a server's answers with the recorded ones.

    python tests/golden/replay.py HOST:PORT SCENARIO.jsonl... [--deviations FILE.toml]

Every scenario wants a freshly started server. What is compared, and what a deviation is, says README.md. Nothing of the
code under test is used here: frames and headers are cut and read by hand. Exit code: 0 every step as recorded or as the
deviations say, 1 some are not, 2 bad usage or no connection.
"""

import argparse
import json
import re
import socket
import struct
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# only a guard: a busy machine is slow to start to answer
ANSWER_SECONDS = 120.0
# A server that answers or closes does so at once on a loopback; only then is silence told from slowness.
SILENCE_SECONDS = 0.3

# fields of an answer that are compared, as a deviation names them
HEADER_FIELDS = ("code", "flag", "remark", "extFields")
# what a server may do instead of answering
OUTCOMES = ("closed", "silent", "none")

# a string, which is left alone, or an integer key without quotes, which fastjson writes
_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(?=\s*:)')

# an answer's fields, or an outcome
Answer = Mapping[str, Any] | str


class ReplayError(Exception):
    """A file that cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded request, and what became of it."""

    name: str
    label: str
    connection: int
    request: bytes
    answer: Answer
    # None: whichever number the server draws
    opaque: int | None
    is_only_code_compared: bool


@dataclass(frozen=True, slots=True)
class Deviation:
    """A step that is answered differently on purpose: as wanted, or, when nothing is wanted, however it likes."""

    reason: str
    wanted: Answer | None


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one step."""

    name: str
    label: str
    deviates: bool
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.label}".rstrip() + f": {'; '.join(self.problems)}"


def read_scenario(path: Path) -> list[Step]:
    """The steps of one scenario, in their order."""
    return [_step(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _step(recorded: Mapping[str, Any]) -> Step:
    answer = recorded["response"]
    if not isinstance(answer, str):
        header = answer["header"]
        answer = {name: header.get(name) for name in HEADER_FIELDS}
        answer |= {"body": recorded["response"]["body"], "serialize_type": recorded["response"]["serialize_type"]}
    return Step(
        name=f"{recorded['scenario']}/{recorded['step']}",
        label=recorded.get("label", ""),
        connection=recorded["connection"],
        request=bytes.fromhex(recorded["request"]),
        answer=answer,
        opaque=recorded.get("opaque"),
        is_only_code_compared=recorded.get("compare") == "code",
    )


def read_deviations(path: Path) -> dict[str, Deviation]:
    """Deviations by the name of their step.

    Raises:
        ReplayError: one without a reason, or one that does not say what it wants.
    """
    return {name: _deviation(name, table) for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items()}


def _deviation(name: str, table: Any) -> Deviation:
    if not isinstance(table, dict) or table.keys() - {"reason", "accept", "response"}:
        raise ReplayError(f"{name}: a deviation is a table of reason and either response or accept, got {table!r}")
    reason, wanted = table.get("reason"), table.get("response")
    if not isinstance(reason, str) or not reason.strip():
        raise ReplayError(f"{name}: a deviation without a reason")
    if (wanted is None) == (table.get("accept") is not True):
        raise ReplayError(f"{name}: a deviation has either a response or accept = true")
    if isinstance(wanted, dict) and not wanted.keys() <= {*HEADER_FIELDS, "body"}:
        raise ReplayError(f"{name}: of {sorted(wanted)} only {', '.join(HEADER_FIELDS)} and body can be wanted")
    if isinstance(wanted, str) and wanted not in OUTCOMES:
        raise ReplayError(f"{name}: outcome {wanted!r} is none of {', '.join(OUTCOMES)}")
    return Deviation(reason, wanted)


def replay(
    address: tuple[str, int], steps: Iterable[Step], deviations: Mapping[str, Deviation] | None = None
) -> list[Result]:
    """Send all requests to a freshly started server and judge what it does.

    Raises:
        OSError: no connection.
    """
    results: list[Result] = []
    peers: dict[int, _Peer] = {}
    try:
        for step in steps:
            peer = peers.get(step.connection) or peers.setdefault(step.connection, _Peer(address))
            results.append(judge(step, peer.exchange(step), (deviations or {}).get(step.name)))
    finally:
        for peer in peers.values():
            peer.close()
    return results


def unused(deviations: Iterable[str], results: Sequence[Result]) -> list[str]:
    """Deviations of the scenarios that were played, for steps that these do not have."""
    played = {result.name for result in results}
    scenarios = {name.rpartition("/")[0] for name in played}
    return [name for name in deviations if name.rpartition("/")[0] in scenarios and name not in played]


def judge(step: Step, got: Answer, deviation: Deviation | None) -> Result:
    """Compare what a server did with what it should have done."""
    problems = _differences(step, step.answer, got)
    if deviation is None:
        return Result(step.name, step.label, deviates=False, problems=tuple(problems))
    if not problems:
        problems = ["does not deviate any more"]
    elif deviation.wanted is None:
        problems = []
    elif isinstance(step.answer, str) or isinstance(deviation.wanted, str):
        problems = _differences(step, deviation.wanted, got)
    else:
        problems = _differences(step, {**step.answer, **deviation.wanted}, got)
    return Result(step.name, step.label, deviates=True, problems=tuple(problems))


def _differences(step: Step, wanted: Answer, got: Answer) -> list[str]:
    if isinstance(wanted, str) or isinstance(got, str):
        return [] if wanted == got else [f"want {_shown(wanted)}, got {_shown(got)}"]
    names = ("code",) if step.is_only_code_compared else ("serialize_type", *HEADER_FIELDS)
    # a field that is empty and one that is not there mean the same to every client
    found = [
        f"{name}: want {wanted.get(name)!r}, got {got.get(name)!r}"
        for name in names
        if (wanted.get(name) or None) != (got.get(name) or None)
    ]
    if step.opaque is not None and got["opaque"] != step.opaque:
        found.append(f"opaque: want {step.opaque}, got {got['opaque']}")
    if not step.is_only_code_compared and _as_data(wanted.get("body", "")) != _as_data(got["body"]):
        found.append(f"body: want {wanted.get('body', '')!r}, got {got['body']!r}")
    return found


def _shown(answer: Answer) -> str:
    return answer if isinstance(answer, str) else f"code {answer['code']} with remark {answer['remark']!r}"


def _as_data(body: str) -> object:
    """What a body says, however it is spelt; the text itself when it is not JSON."""
    try:
        return _without_order(json.loads(_STRING_OR_BARE_KEY.sub(_quote_bare_key, body)))
    except ValueError:
        return body


def _quote_bare_key(found: re.Match[str]) -> str:
    return found[0] if found[2] is None else f'{found[1]}"{found[2]}"'


def _without_order(data: object) -> object:
    """Members and items in one order: there is no list in any of these bodies whose order means something."""
    if isinstance(data, dict):
        return {key: _without_order(value) for key, value in data.items()}
    if isinstance(data, list):
        return sorted(map(_without_order, data), key=lambda item: json.dumps(item, sort_keys=True))
    return data


class _Peer:
    """One connection of a scenario."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS)

    def exchange(self, step: Step) -> Answer:
        """Send a request; what the server does."""
        self._socket.settimeout(SILENCE_SECONDS if step.answer == "silent" else ANSWER_SECONDS)
        try:
            self._socket.sendall(step.request)
            return "none" if step.answer == "none" else self._answer()
        except TimeoutError:
            return "silent"
        except (EOFError, ConnectionError):
            return "closed"

    def _answer(self) -> Answer:
        length, word = struct.unpack(">II", self._exactly(8))
        rest = self._exactly(length - 4)
        header, body = rest[: word & 0xFFFFFF], rest[word & 0xFFFFFF :]
        return {**json.loads(header), "serialize_type": word >> 24, "body": body.decode()}

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def close(self) -> None:
        self._socket.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Replay scenarios against a server that runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("scenarios", nargs="+", type=Path, metavar="SCENARIO.jsonl")
    parser.add_argument("--deviations", type=Path, metavar="FILE.toml")
    options = parser.parse_args(argv)
    host, _, port = options.server.rpartition(":")
    try:
        deviations = read_deviations(options.deviations) if options.deviations else {}
        results = [
            result
            for path in options.scenarios
            for result in replay((host.strip("[]"), int(port)), read_scenario(path), deviations)
        ]
    except (OSError, ValueError, ReplayError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    wrong = [result for result in results if result.problems]
    deviating = sum(result.deviates for result in results if not result.problems)
    lines = [str(result) for result in wrong]
    lines += (f"{name}: a deviation of a step that does not exist" for name in unused(deviations, results))
    same = len(results) - len(wrong) - deviating
    count = f"{same} as recorded, {deviating} deviating on purpose, {len(wrong)} different"
    sys.stdout.writelines(f"{line}\n" for line in (*lines, count))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
