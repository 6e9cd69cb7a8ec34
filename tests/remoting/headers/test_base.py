"""Ext fields become typed values, and a bad one is refused by its name and value."""

from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.errors import BadRequestError
from namesrv_remoting.headers import ExtHeader
from namesrv_remoting.headers.base import Int32, Int64, Name
from tests.support.commands import EXT_FIELDS, INT32, TEXT


class Header(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One field of each kind."""

    broker_name: Name
    topic_count: Int32
    counter: Int64 | None = None
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50
    enable_order: bool = False
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")


LEAST = {"brokerName": "a", "topicCount": "0"}
NOTHING: list[dict[str, str] | None] = [None, {}]


def test_ext_fields_become_typed_values() -> None:
    """Names in camelCase; what is not declared is ignored."""
    header = Header.from_ext(
        {
            "brokerName": "broker-a",
            "topicCount": "-7",
            "counter": "9223372036854775807",
            "percent": "100",
            "enableOrder": "true",
            "__ZONE_NAME": "z1",
            "AccessKey": "ignored",
        }
    )

    assert header == Header(
        broker_name="broker-a",
        topic_count=-7,
        counter=9223372036854775807,
        percent=100,
        enable_order=True,
        zone_name="z1",
    )


def test_missing_optional_fields_have_their_defaults() -> None:
    """Absent is not empty."""
    assert Header(broker_name="a", topic_count=0) == Header.from_ext(LEAST)


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_true_in_any_case_is_true(text: str) -> None:
    """As Boolean.parseBoolean reads it."""
    assert Header.from_ext({**LEAST, "enableOrder": text}).enable_order


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"brokerName": None}, "field brokerName is missing"),
        ({"topicCount": None}, "field topicCount is missing"),
        ({"brokerName": None, "topicCount": None}, "field brokerName is missing"),
        ({"brokerName": ""}, "field brokerName is empty"),
        ({"topicCount": ""}, "field topicCount is empty"),
        ({"counter": ""}, "field counter is empty"),
        ({"topicCount": "abc"}, "field topicCount: 'abc': expected `int`, got `str`"),
        ({"topicCount": "1.5"}, "field topicCount: '1.5': expected `int`, got `str`"),
        ({"topicCount": "1_0"}, "field topicCount: '1_0': expected `int`, got `str`"),
        ({"topicCount": "2147483648"}, "field topicCount: '2147483648': expected `int` <= 2147483647"),
        ({"topicCount": "-2147483649"}, "field topicCount: '-2147483649': expected `int` >= -2147483648"),
        (
            {"counter": "9223372036854775808"},
            "field counter: '9223372036854775808': expected `int` <= 9223372036854775807",
        ),
        ({"percent": "101"}, "field percent: '101': expected `int` <= 100"),
        ({"enableOrder": "yes"}, "field enableOrder: 'yes': expected `bool`, got `str`"),
        ({"topicCount": "9" * 5000}, f"field topicCount: '{'9' * 64}': integer value out of range"),
    ],
)
def test_bad_field_is_refused_by_name_and_value(changed: dict[str, str | None], remark: str) -> None:
    """Missing, empty, unreadable or out of range; a long value is shown in part."""
    fields = {key: value for key, value in {**LEAST, **changed}.items() if value is not None}

    with pytest.raises(BadRequestError) as caught:
        Header.from_ext(fields)
    assert (caught.value.remark or "").startswith(remark)
    assert caught.value.code == 1


def test_no_ext_fields_at_all_miss_the_first_required_one() -> None:
    """A header without the member, and one with an empty member, are the same."""
    for nothing in NOTHING:
        with pytest.raises(BadRequestError, match=r"^field brokerName is missing$"):
            Header.from_ext(nothing)


def test_typed_values_become_ext_fields() -> None:
    """Strings as Java spells them; what is None is not there."""
    header = Header(broker_name="a", topic_count=-7, enable_order=True)

    assert header.to_ext() == {"brokerName": "a", "topicCount": "-7", "percent": "50", "enableOrder": "true"}
    assert Header(broker_name="a", topic_count=0, zone_name="").to_ext()["__ZONE_NAME"] == ""


@given(
    broker_name=TEXT.filter(bool),
    topic_count=INT32,
    counter=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    percent=st.integers(0, 100),
    enable_order=st.booleans(),
    zone_name=st.none() | TEXT,
)
def test_round_trip(**fields: object) -> None:
    """What was written is read."""
    header = Header(**fields)  # type: ignore[arg-type]  # of the types that are drawn

    assert header == Header.from_ext(header.to_ext())


@given(EXT_FIELDS | st.fixed_dictionaries({"brokerName": TEXT, "topicCount": TEXT}, optional={"enableOrder": TEXT}))
def test_no_ext_fields_break_the_reader(ext_fields: dict[str, str]) -> None:
    """A header, or a refusal that names a field: nothing else."""
    try:
        Header.from_ext(ext_fields)
    except BadRequestError as error:
        assert (error.remark or "").startswith("field ")  # noqa: PT017 - either outcome is right
