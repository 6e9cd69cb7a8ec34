"""Targets of attacks, and the bytes that attacks send."""

import dataclasses
import zlib
from pathlib import Path

import pytest

from benchmarks.abuse import payloads, report
from benchmarks.abuse.memory_group import NoMemoryGroupError, place
from benchmarks.abuse.scenario import Result
from namesrv_remoting.bodies.register import decode_body, decode_native_body
from namesrv_remoting.codes import CURRENT_VERSION
from tests.support.steps import finished

# Every figure is exactly at its bound.
AT_ITS_BOUNDS = Result(
    name="bounds", what="as much as may be", peers=1, may_refuse_clients=False, may_refuse_brokers=False,
    sent_mib=2.0, weight_mib=2.0, closed=9, cpu_seconds=0.4, peak_mib=64.0, tables_mib=0.0, limit_mib=0.0,
    group_peak_mib=0.0, kills=0, held_mib=64.0, longest_seconds=9.0, longest_cpu_seconds=0.05,
    lag_seconds=None, p50_seconds=0.001, p99_quiet_seconds=0.002, p99_seconds=0.006,
    p99_quiet_cpu_seconds=0.001, p99_cpu_seconds=0.006, evicted=(), lost=0, is_dead_gone=True, dead_scans=10,
    most_scans=10, dead_seconds=4.7, most_dead_seconds=4.7, livez_seconds=1.0, refused_clients=0, refused_brokers=0,
    newcomer_seconds=1.0, newcomers=9, stopped_seconds=5.0, is_answering=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, []),
        ({"cpu_seconds": 0.41}, ["cpu"]),
        # A tiny attack may cost as much as a mebibyte.
        ({"cpu_seconds": 0.2, "weight_mib": 0.01}, []),
        ({"cpu_seconds": 0.21, "weight_mib": 0.01}, ["cpu"]),
        # The bound for many peers is one of memory.
        ({"cpu_seconds": 9.0, "peers": 200}, []),
        ({"peak_mib": 64.1}, ["memory"]),
        ({"peak_mib": 84.0, "tables_mib": 20.0}, []),
        ({"peak_mib": 512.0, "peers": 200}, []),
        ({"peak_mib": 512.1, "peers": 200}, ["memory"]),
        ({"p99_seconds": 0.0061}, ["p99"]),
        ({"p99_seconds": 0.005, "p99_quiet_seconds": 0.0001}, []),
        # others kept the processor
        ({"p99_seconds": 0.0061, "p99_cpu_seconds": 0.005}, []),
        ({"evicted": ("live-0",)}, ["evicted"]),
        ({"lost": 1}, ["evicted"]),
        ({"dead_scans": 11}, ["late"]),
        ({"is_dead_gone": False}, ["dead"]),
        # others kept the processor
        ({"longest_cpu_seconds": 0.051, "longest_seconds": 0.05}, []),
        ({"longest_cpu_seconds": 0.051}, ["stall"]),
        ({"longest_cpu_seconds": 0.051, "peers": 11}, []),
        ({"dead_seconds": 4.71}, ["overdue"]),
        ({"dead_seconds": 4.71, "peers": 11}, []),
        ({"livez_seconds": 1.01}, ["livez"]),
        ({"newcomer_seconds": 1.1}, ["slow"]),
        # Without a free connection slot a newcomer may have to wait.
        ({"newcomer_seconds": 6.0, "may_refuse_clients": True}, []),
        ({"newcomer_seconds": 6.1, "may_refuse_clients": True}, ["slow"]),
        ({"is_answering": False}, ["hung"]),
        ({"refused_clients": 1}, ["refused"]),
        ({"refused_clients": 1, "may_refuse_clients": True}, []),
        ({"refused_brokers": 1, "may_refuse_clients": True}, ["refused"]),
        ({"stopped_seconds": 5.1}, ["stop"]),
        ({"kills": 1}, ["killed"]),
        ({"refused_brokers": 9, "refused_clients": 9, "may_refuse_clients": True, "may_refuse_brokers": True}, []),
    ],
)
def test_a_target_is_missed_beyond_its_bound(changes: dict[str, object], missed: list[str]) -> None:
    """A figure at its bound meets the target, and a larger one misses it."""
    assert report.missed(dataclasses.replace(AT_ITS_BOUNDS, **changes)) == missed  # type: ignore[arg-type]  # fields


# Every figure is exactly at half of its bound.
AT_HALF = dataclasses.replace(
    AT_ITS_BOUNDS, cpu_seconds=0.2, peak_mib=32.0, p99_seconds=0.003, longest_seconds=0.025, longest_cpu_seconds=0.0
)


@pytest.mark.parametrize(
    ("changes", "is_shown"),
    [
        ({}, False),
        ({"cpu_seconds": 0.21}, True),
        ({"cpu_seconds": 0.21, "peers": 2}, False),
        ({"peak_mib": 32.1}, True),
        ({"peak_mib": 256.0, "peers": 2}, False),
        ({"peak_mib": 256.1, "peers": 2}, True),
        ({"p99_seconds": 0.0031}, True),
        ({"longest_seconds": 0.026}, True),
        ({"longest_seconds": 0.026, "peers": 11}, False),
        ({"kills": 1}, True),
    ],
)
def test_page_shows_attacks_that_take_more_than_half_of_a_target(changes: dict[str, object], is_shown: bool) -> None:
    """A figure above half of its bound, or a missed target, puts the attack on the page."""
    result = dataclasses.replace(AT_HALF, **changes)  # type: ignore[arg-type]  # fields

    assert report.takes_half(result) is is_shown
    assert ("| bounds |" in report.markdown([result])) is is_shown


def test_summary_names_attacks_beyond_their_targets_and_without_figures() -> None:
    """Largest wait and memory are those of the attacks whose targets bound them: few addresses, and one peer."""
    many = dataclasses.replace(AT_ITS_BOUNDS, name="many", peers=200, longest_seconds=60.0, peak_mib=512.1)

    assert report.summary([AT_ITS_BOUNDS, many], ["storm", "files"]) == (
        "1 of 2 attacks are within all targets; not within: many.\n"
        "Not measured: storm, files.\n"
        "The longest wait with at most 10 addresses is 9,000 ms.\n"
        "One peer costs at most 64 MiB beside the tables."
    )
    assert report.summary([many], ()) == "0 of 1 attacks are within all targets; not within: many."


def test_changed_body_has_the_same_content_in_other_bytes() -> None:
    """A changed body has the same content in other bytes, so that a server decodes it again."""
    plain, packed = payloads.json_topics(3), payloads.native_topics(3)
    names = ["0", "1", "2"]

    for body in (plain, payloads.changed(plain)):
        decoded = finished(decode_body(body, CURRENT_VERSION, compressed=False))
        assert [topic.topic_name for topic in decoded.topic_configs] == names
    for body in (packed, payloads.changed(packed)):
        decoded = finished(decode_native_body(body, compressed=False))
        assert [topic.topic_name for topic in decoded.topic_configs] == names
    assert payloads.changed(packed) != packed
    stream = zlib.compress(b"a" * 99, 6)
    assert payloads.changed(stream) != stream
    assert zlib.decompress(payloads.changed(stream)) == b"a" * 99


@pytest.mark.parametrize(
    ("cgroups", "parent"),
    [
        # Both versions are mounted; v1 has the memory controller.
        ("4:memory:/jobs/7\n1:cpu:/\n0::/init.scope\n", Path("memory/jobs/7")),
        ("0::/user.slice/session-1.scope\n", Path("user.slice")),
        ("0::/\n", Path()),
    ],
)
def test_a_memory_group_is_made_where_that_is_allowed(cgroups: str, parent: Path) -> None:
    """The group is below our own group with v1, beside it with v2."""
    assert place(cgroups)[0] == parent


def test_a_machine_may_have_no_memory_groups() -> None:
    """The error names the missing memory groups."""
    with pytest.raises(NoMemoryGroupError, match="this machine has none"):
        place("1:cpu:/\n")
