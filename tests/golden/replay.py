"""Replays recorded requests and compares a server's responses with the recorded ones.

python tests/golden/replay.py HOST:PORT SCENARIO.jsonl... [--deviations FILE.toml]

Every scenario needs a freshly started server. README.md defines the comparison and deviations. No code under test is
used: frames and headers are encoded and decoded by hand. Exit code: 0 when every step is as recorded or as its
deviation says, 1 when some are not, 2 for bad usage or no connection.
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

# A busy machine may be slow to begin its response.
ANSWER_SECONDS = 120.0
# A step without a response for this time counts as silent; on loopback a server responds or closes at once.
SILENCE_SECONDS = 0.3

# The compared fields of a response; deviations use these names.
HEADER_FIELDS = ("code", "flag", "remark", "extFields")
# Outcomes other than a response.
OUTCOMES = ("closed", "silent", "none")

# Matches a string, which stays unchanged, or an unquoted integer key, as written by fastjson.
_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(?=\s*:)')

# Fields of a response, or an outcome.
Answer = Mapping[str, Any] | str


class ReplayError(Exception):
    """An unusable file."""


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded request with its outcome."""

    name: str
    label: str
    connection: int
    request: bytes
    answer: Answer
    # None: any number chosen by the server.
    opaque: int | None
    is_only_code_compared: bool


@dataclass(frozen=True, slots=True)
class Deviation:
    """A step with an intended different response, with any response, or with a longer remark."""

    reason: str
    # None: any response, unless `has_longer_remark`.
    wanted: Answer | None
    # True: the server's remark has lines after the recorded remark.
    has_longer_remark: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one step."""

    name: str
    label: str
    deviates: bool
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.label}".rstrip() + f": {'; '.join(self.problems)}"


def read_scenario(path: Path) -> list[Step]:
    """The steps of one scenario, in order."""
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
    """Deviations, by name of their step.

    Raises:
        ReplayError: a deviation has no reason, or does not say what it wants.
    """
    return {name: _deviation(name, table) for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items()}


def _deviation(name: str, table: Any) -> Deviation:
    if not isinstance(table, dict) or table.keys() - {"reason", "accept", "response", "longer"}:
        raise ReplayError(f"{name}: a deviation is a table of reason and response, accept or longer, got {table!r}")
    reason, wanted = table.get("reason"), table.get("response")
    if not isinstance(reason, str) or not reason.strip():
        raise ReplayError(f"{name}: a deviation without a reason")
    if table.get("longer") == "remark":
        return Deviation(reason, None, has_longer_remark=True)
    if (wanted is None) == (table.get("accept") is not True):
        raise ReplayError(f"{name}: a deviation has either a response or accept = true")
    if isinstance(wanted, dict) and not wanted.keys() <= {*HEADER_FIELDS, "body"}:
        raise ReplayError(f"{name}: of {sorted(wanted)} only {', '.join(HEADER_FIELDS)} and body can be wanted")
    if isinstance(wanted, str) and wanted not in OUTCOMES:
        raise ReplayError(f"{name}: outcome {wanted!r} is not one of {', '.join(OUTCOMES)}")
    return Deviation(reason, wanted)


def replay(
    address: tuple[str, int], steps: Iterable[Step], deviations: Mapping[str, Deviation] | None = None
) -> list[Result]:
    """Send all requests to a freshly started server and judge its responses.

    Raises:
        OSError: no connection.
    """
    results: list[Result] = []
    peers: dict[int, _Peer] = {}
    try:
        for step in steps:
            peer = peers.get(step.connection) or peers.setdefault(step.connection, _Peer(address))
            results.append(judge(step, peer.exchange(step), deviation_of(step, deviations or {})))
    finally:
        for peer in peers.values():
            peer.close()
    return results


def deviation_of(step: Step, deviations: Mapping[str, Deviation]) -> Deviation | None:
    """The deviation of a step itself, or that of all steps whose recorded response has the same code."""
    code = None if isinstance(step.answer, str) else step.answer["code"]
    return deviations.get(step.name) or deviations.get(f"code {code}")


def unused(deviations: Iterable[str], results: Sequence[Result]) -> list[str]:
    """Deviations of replayed scenarios without a matching step."""
    played = {result.name for result in results}
    scenarios = {name.rpartition("/")[0] for name in played}
    return [name for name in deviations if name.rpartition("/")[0] in scenarios and name not in played]


def judge(step: Step, got: Answer, deviation: Deviation | None) -> Result:
    """Compare a server's response with the expected one."""
    problems = _differences(step, step.answer, got)
    if deviation is None:
        return Result(step.name, step.label, deviates=False, problems=tuple(problems))
    if not problems:
        problems = ["does not deviate any more"]
    elif deviation.has_longer_remark and not isinstance(got, str) and not isinstance(step.answer, str):
        kept = "\n".join((got["remark"] or "").split("\n")[: step.answer["remark"].count("\n") + 1])
        problems = _differences(step, step.answer, {**got, "remark": kept})
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
    # Clients treat an empty field like a missing one.
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
    """The parsed body, or its text if it is not JSON."""
    try:
        return _without_order(json.loads(_STRING_OR_BARE_KEY.sub(_quote_bare_key, body)))
    except ValueError:
        return body


def _quote_bare_key(found: re.Match[str]) -> str:
    return found[0] if found[2] is None else f'{found[1]}"{found[2]}"'


def _without_order(data: object) -> object:
    """Members and items in sorted order: no list in these bodies has a meaningful order."""
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
        """Send a request; return the server's response or outcome."""
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
    """Replay scenarios against a running server."""
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
