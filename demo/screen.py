"""Prints events of the demo as a timeline, and a table of the times after which the loss of a broker was noticed."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TextIO

# (broker name, broker id)
Instance = tuple[str, int]

# Name of the line's subject -> colour, readable on dark and light backgrounds.
_COLOURS: Final = {"you": "1;35", "ns1": "36", "ns2": "34", "producer": "32", "consumer": "33", "console": "36"}
_BAD: Final = "31"
_DIM: Final = "2"
_BOLD: Final = "1"
_WIDTH: Final = 9
_COLUMN: Final = 11


# Interval at which a wait checks for an interrupt.
_CHECK_SECONDS: Final = 0.1


class TimeoutInStoryError(Exception):
    """An event did not happen in time; the message names the event."""


class InterruptedStoryError(Exception):
    """A signal has asked the demo to end."""


@dataclass(slots=True)
class Loss:
    """The loss of a broker, with the time after which each server and client noticed it."""

    what: str
    instance: Instance
    began: float
    # NameServer or client -> seconds
    noticed: dict[str, float] = field(default_factory=dict)


class Screen:
    """A timeline of printed lines (time since the start, subject, event); thread-safe."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._is_coloured = out.isatty()
        self._began = time.monotonic()
        self._losses: list[Loss] = []
        self._is_interrupted = False
        # Held while a line is printed, and notified of every event. Reentrant, because a condition may print a line.
        self._changed = threading.Condition(threading.RLock())

    def line(self, who: str, what: str, *, is_bad: bool = False) -> None:
        """Print one event."""
        text = self._painted(what, _BAD) if is_bad else self._painted(what, _BOLD) if who == "you" else what
        seconds = self._painted(f"{time.monotonic() - self._began:7.2f} s", _DIM)
        self.note(f"{seconds}  {self._painted(f'{who:<{_WIDTH}}', _COLOURS.get(who, '0'))}  {text}")

    def heading(self, text: str) -> None:
        """Print the heading of a scene."""
        self.note(f"\n{self._painted(text, _BOLD)}")

    def note(self, text: str) -> None:
        """Print plain text."""
        with self._changed:
            self._out.write(f"{text}\n")
            self._out.flush()
            self._changed.notify_all()

    def _painted(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._is_coloured else text

    def until(self, what: str, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until a condition is true, which is checked after every line and every 0.1 s, and must not block.

        Raises:
            TimeoutInStoryError: it is not true in time.
            InterruptedStoryError: `interrupt` was called.
        """
        if not self._wait(condition, seconds):
            raise TimeoutInStoryError(f"not within {seconds:g} s: {what}")

    def pause(self, seconds: float) -> None:
        """Wait for this time. Raises InterruptedStoryError if `interrupt` was called."""
        self._wait(lambda: False, seconds)

    def interrupt(self) -> None:
        """Let the current wait, or the next one, raise InterruptedStoryError; for signal handlers.

        An exception raised in a signal handler could leave the lock held, since the handler may run between acquiring
        the lock and entering the `with` block.
        """
        self._is_interrupted = True

    def _wait(self, condition: Callable[[], object], seconds: float) -> bool:
        """True once the condition is true; False after this time. Raises InterruptedStoryError."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                if self._is_interrupted:
                    raise InterruptedStoryError
                if condition():
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _CHECK_SECONDS))

    # -- losses -------------------------------------------------------------------------------------------------------

    def lose(self, what: str, instance: Instance) -> Loss:
        """Print and record the loss of a broker, which happens now."""
        self.line("you", what)
        self._losses.append(Loss(what.partition(":")[0], instance, time.monotonic()))
        return self._losses[-1]

    def gone(self, who: str, instance: Instance, how: str, why: str = "", *, is_bad: bool = False) -> None:
        """Print that a server or client has dropped a broker, with the time since its loss."""
        after = ""
        for loss in reversed(self._losses):
            if loss.instance == instance and who not in loss.noticed:
                loss.noticed[who] = time.monotonic() - loss.began
                after = f", after {loss.noticed[who]:.2f} s"
                break
        self.line(who, f"{how} {called(instance)}{after}{why}", is_bad=is_bad)

    def table(self, names: list[str], bound_seconds: float) -> None:
        """Print all losses, one per line."""
        width = max((len(loss.what) for loss in self._losses), default=0) + 2
        self.note("  " + " " * width + "".join(f"{name:>{_COLUMN}}" for name in names))
        for loss in self._losses:
            cells = (f"{loss.noticed[name]:.2f} s" if name in loss.noticed else "-" for name in names)
            self.note(f"  {loss.what:<{width}}" + "".join(f"{cell:>{_COLUMN}}" for cell in cells))
        self.note(f"  longest time by the settings: {bound_seconds:.2f} s")


def called(instance: Instance) -> str:
    """The display name of a broker."""
    name, number = instance
    return f"{name}'s slave {number}" if number else name


class ServerLog(logging.Handler):
    """Prints the log events of the NameServers, each of which runs in its own thread."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen
        # data directory -> name of the server; thread -> name
        self.names: dict[str, str] = {}
        self._threads: dict[int | None, str] = {}
        # name of the server -> brokers in its routes
        self.brokers: dict[str, set[Instance]] = {}
        self.ready: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print an event of a NameServer; events of clients and agents are ignored."""
        fields = getattr(record, "fields", {})
        if record.msg == "listening":
            name = self._threads[record.thread] = self.names[str(fields["data_dir"])]
            self.brokers[name] = set()
            if fields["ready"]:
                self.ready.add(name)
            self._screen.line(name, f"listens on {fields['addresses'][0]}")
        elif record.thread in self._threads:
            self._of_server(self._threads[record.thread], str(record.msg), fields)

    def _of_server(self, name: str, what: str, fields: dict[str, object]) -> None:
        instance = (str(fields.get("broker_name")), int(str(fields.get("broker_id", 0))))
        match what:
            case "waiting":
                self._screen.line(name, f"gives no routes yet: {_reason(fields)}")
            case "ready":
                self.ready.add(name)
                self._screen.line(name, f"gives routes: {_reason(fields)}")
            case "broker_registered" if instance not in self.brokers[name]:
                self.brokers[name].add(instance)
                self._screen.line(name, f"knows {called(instance)}")
            case "broker_evicted":
                self.brokers[name].discard(instance)
                self._evicted(name, instance, fields)

    def _evicted(self, name: str, instance: Instance, fields: dict[str, object]) -> None:
        reason = str(fields["reason"])
        why = {
            "silent": f"silent for {int(str(fields['silent_ms'])) / 1000:.2f} s",
            "disconnected": "its connection was closed",
            "unregistered": "it unregistered",
        }.get(reason, reason)
        self._screen.gone(name, instance, "drops", f": {why}", is_bad=reason != "unregistered")


def _reason(fields: dict[str, object]) -> str:
    """The reason why the server is ready or not, without the list of missing brokers."""
    return str(fields["reason"]).removeprefix("not ").removeprefix("ready: ").partition(":")[0]
