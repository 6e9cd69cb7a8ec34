"""What is made of what a server answers, whatever it is?"""

import msgpack
import pytest

from namesrv_client.ctl import answers
from namesrv_client.ctl.answers import Event, Events
from namesrv_client.ctl.servers import Answers, problem, reason
from namesrv_remoting.bodies.route import BrokerData
from namesrv_remoting.errors import ConnectError, NoPermissionError, RemoteProtocolError, RequestTimeoutError


@pytest.mark.parametrize("read", [answers.server_info, answers.live_brokers, answers.connections, answers.events])
@pytest.mark.parametrize(
    "members",
    [
        None,
        [],
        {},
        {"brokers": 1, "connections": 1, "events": 1},
        {"brokers": [{}], "connections": [{}], "events": [{}]},
    ],
)
def test_native_answer_that_is_none_is_the_peers_fault(read: object, members: object) -> None:
    """Nothing past the decoder meets it."""
    with pytest.raises(RemoteProtocolError, match=r"^body of the answer cannot be read: "):
        read(msgpack.packb(members))  # type: ignore[operator]  # one of the functions above


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"brokerAddrTable":[],"topicList":1,"table":[]}'])
def test_json_answer_that_is_none_is_the_peers_fault(body: bytes) -> None:
    """As well."""
    for read in (answers.cluster_info, answers.topic_list, answers.kv_table):
        with pytest.raises(RemoteProtocolError, match=r"^body of the answer cannot be read: "):
            read(body, native=False)


def test_members_that_java_leaves_out_have_defaults() -> None:
    """Fastjson writes no nulls."""
    body = b'{"brokerAddrTable":{"b":{"brokerName":"b"}}}'

    assert {"b": BrokerData("", "b", {})} == answers.cluster_info(body, native=False).broker_addr_table
    assert {} == answers.cluster_info(b"{}", native=False).cluster_addr_table
    assert [] == answers.topic_list(b"{}", native=False)
    assert {} == answers.kv_table(b"{}", native=False)


def test_members_that_are_not_known_are_left_alone() -> None:
    """A newer server tells more."""
    event = {"seq": 7, "event": "e", "ts_ms": 5, "x": 1, "list": ["a", None]}
    body = msgpack.packb({"boot_id": "b", "events": [event], "new": {}})

    found = answers.events(body)

    assert Events("b", [Event(7, "e", 5, {"x": 1, "list": ["a", None]})]) == found
    assert event == found.events[0].members()


def test_nested_members_of_an_event_are_refused() -> None:
    """Events are flat; a nest a thousand deep would end in a traceback."""
    body = msgpack.packb({"boot_id": "b", "events": [{"seq": 1, "event": "e", "x": {"y": 1}}]})

    with pytest.raises(RemoteProtocolError):
        answers.events(body)


def test_properties_are_read_as_java_writes_them() -> None:
    """Escapes, comments, keys without a value; half a surrogate pair is no text."""
    body = b"#c\n!c\n\na=1\nb=x=y \nc\nd=\\u00fc\\\\\\t\ne=\\ f\ng=\\ud83d\\ude00\nh=\\ud83d\n=z\n"

    assert {
        "a": "1",
        "b": "x=y",
        "c": "",
        "d": "ü\\\t",
        "e": " f",
        "g": "\U0001f600",
        "h": "\ufffd",
    } == answers.properties(body)


def test_properties_are_written_as_java_reads_them() -> None:
    """What would be taken for something else is escaped."""
    assert b"a=1\n\\#b\\:c=x=y\\\\z\nd=\\  e\\n\nf=\xc3\xbc\n" == answers.properties_text(
        {"a": "1", "#b:c": "x=y\\z", "d": "  e\n", "f": "ü"}
    )


@pytest.mark.parametrize(
    ("given", "refused", "unreachable", "code", "code_if_all"),
    [
        ("ab", "", "", 0, 0),
        ("a", "", "b", 0, 1),
        ("a", "b", "", 1, 1),
        ("", "ab", "", 1, 1),
        ("", "a", "b", 1, 1),
        ("", "", "ab", 2, 2),
    ],
)
def test_exit_code_of_answers(given: str, refused: str, unreachable: str, code: int, code_if_all: int) -> None:
    """A refusal is an answer, and a no; one that is missing counts where all are needed; nobody at all is 2."""
    found = Answers(
        ("a", "b"), dict.fromkeys(given, 1), dict.fromkeys(refused, "no"), dict.fromkeys(unreachable, "down")
    )

    assert (code, code_if_all) == (found.code(), found.code(needs_all=True))


def test_answers_keep_the_order_of_the_servers() -> None:
    """Also where one has none."""
    found = Answers(("b:1", "c:1", "a:1"), {"a:1": 5}, {"b:1": "no"}, {"c:1": "no connection to c:1: refused"})

    assert ["b:1: no", "no connection to c:1: refused"] == found.problems()
    assert [
        {"server": "b:1", "error": "no", "answered": True},
        {"server": "c:1", "error": "no connection to c:1: refused", "answered": False},
        {"server": "a:1", "x": 5},
    ] == found.documents(lambda value: {"x": value})


def test_reasons_are_told_in_one_line() -> None:
    """With the code of a refusal; a line that names the server names it once."""
    assert "refused with code 16: not here" == reason(NoPermissionError("not here"))
    assert "refused with code 16: no reason given" == reason(NoPermissionError(None))
    assert "gone" == reason(ConnectError("gone"))
    assert "RequestTimeoutError" == reason(RequestTimeoutError())
    assert ("a:1: gone", "no a:1") == (problem("a:1", "gone"), problem("a:1", "no a:1"))
