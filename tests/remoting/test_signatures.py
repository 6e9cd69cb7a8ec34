"""Signatures of requests: made, verified, refused."""

import hmac
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from namesrv_remoting.aio.credentials import Credentials
from namesrv_remoting.codes import FLAG_ONEWAY, RequestCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.frames import FrameReader
from namesrv_remoting.serializers import decode_frame, encode_command
from namesrv_remoting.signatures import (
    Recipe,
    SignatureError,
    Signer,
    Verifier,
    sign_native,
    sign_rocketmq,
)
from tests.support.fake_clock import FakeClock

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
SECRETS = {"orders": [b"12345678"], "rotated": [b"new-secret", b"old-secret"]}
NATIVE = RemotingCommand(
    RequestCode.PUT_KV_CONFIG,
    opaque=7,
    ext_fields={"namespace": "ns", "key": "k", "value": "v"},
    body=b"body",
    serialize_type=SerializeType.MSGPACK,
)
JSON = replace(NATIVE, serialize_type=SerializeType.JSON)

texts = st.text(max_size=8)


def verifier(clock: FakeClock | None = None, *, max_remembered: int = 100) -> Verifier:
    """A verifier that accepts native signatures of the last minute."""
    return Verifier(
        lambda key: SECRETS.get(key, ()),
        wall=(clock or FakeClock()).wall,
        window_seconds=60,
        max_remembered=max_remembered,
    )


def signed(command: RemotingCommand, key: str = "orders", secret: bytes = b"12345678") -> RemotingCommand:
    """The command signed with this key."""
    return Credentials(key, secret, FakeClock().wall).sign(command)


def reason(command: RemotingCommand, judge: Verifier | None = None) -> str:
    """The reason of a refusal."""
    with pytest.raises(SignatureError) as caught:
        (judge or verifier()).verify(command)
    return caught.value.reason


@pytest.mark.parametrize(
    ("secret", "key", "body", "signature"),
    [
        # AclSignerTest.java
        (b"12345678", "Rocket", b"MQ", "IUc8rrO/0gDch8CjObLQsW2rsiA="),
        # the Go client's signature_test.go
        (b"adiaushdiaushd", "Hello RocketMQ Client", b" ACL Feature", "tAb/54Rwwcq+pbH8Loi7FWX4QSQ="),
    ],
)
def test_rocketmq_signature_matches_upstream_vectors(secret: bytes, key: str, body: bytes, signature: str) -> None:
    """Vectors of the Java and Go clients: the access key's value, then the body."""
    assert sign_rocketmq(None, body, key, secret) == {"AccessKey": key, "Signature": signature}


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"topic": "T", "acceptStandardJsonOnly": "true", "a": ""}, "KtrueT"),
        # by UTF-16 unit: U+1F600 (D83D DE00) comes before U+FF5E
        ({"\uff5e": "1", "\U0001f600": "2"}, "K21"),
        # an old signature is replaced, not signed
        ({"Signature": "old"}, "K"),
        ({"broken": "\ud83d"}, "K?"),
    ],
)
def test_rocketmq_signature_covers_the_values_in_the_order_of_java(fields: dict[str, str], values: str) -> None:
    """Values are sorted by name as in a TreeMap and encoded like Java's getBytes."""
    expected = sign_rocketmq(None, b"", values, b"s")["Signature"]

    assert sign_rocketmq(fields, b"", "K", b"s")["Signature"] == expected


def test_vectors_of_the_manual() -> None:
    """The vectors were computed with hashlib, hmac and struct only, for authors of other clients."""
    fields = {"brokerName": "broker-a", "clusterName": "c1", "brokerAddr": "10.0.0.5:10911"}
    heartbeat = RemotingCommand(RequestCode.BROKER_HEARTBEAT, opaque=7, version=479, ext_fields=fields)
    native = sign_native(heartbeat, "broker-a", b"12345678", now_ms=1_700_000_000_000, nonce="0123456789abcdef")
    rocketmq = sign_rocketmq({"topic": "TopicTest"}, b"", "broker-a", b"12345678")
    manual = PROTOCOL.read_text()

    assert native == {
        **fields,
        "AccessKey": "broker-a",
        "signedAt": "1700000000000",
        "nonce": "0123456789abcdef",
        "hmacSha256": "5b9b35faff354c044ca1f6a9d982944d1c820aebe2944a2992dd1c3e957c0b31",
    }
    assert rocketmq["Signature"] == "kPGvMSeSJyqvCjtRLjS9n3ruitE="
    assert all(f"`{each}`" in manual for each in (native["hmacSha256"], rocketmq["Signature"]))


@pytest.mark.parametrize(("command", "recipe"), [(NATIVE, Recipe.NATIVE), (JSON, Recipe.ROCKETMQ)])
@pytest.mark.parametrize(
    ("key", "secret"), [("orders", b"12345678"), ("rotated", b"new-secret"), ("rotated", b"old-secret")]
)
def test_request_is_verified_with_any_secret_of_the_key(
    command: RemotingCommand, recipe: Recipe, key: str, secret: bytes
) -> None:
    """Each protocol has its own recipe; during a rotation both secrets of a key are valid."""
    assert verifier().verify(signed(command, key, secret)) == Signer(key, recipe)


def test_request_without_access_key_is_anonymous() -> None:
    """The verifier returns no account for an unsigned request."""
    assert verifier().verify(JSON) is None


@pytest.mark.parametrize("command", [NATIVE, JSON])
def test_unknown_key_and_wrong_secret_look_the_same(command: RemotingCommand) -> None:
    """Both cases have the same message and cost, so that a stranger learns no account name."""
    refusals = set()
    for key in ("orders", "rotated", "stranger"):
        request = signed(command, key, b"wrong")
        with (
            patch.object(hmac, "new", wraps=hmac.new) as new,
            patch.object(hmac, "digest", wraps=hmac.digest) as digest,
            pytest.raises(SignatureError) as caught,
        ):
            verifier().verify(request)
        remark = str(caught.value).replace(key, "KEY")
        refusals.add((remark, caught.value.reason, new.call_count + digest.call_count))

    assert refusals == {("access key 'KEY' is unknown, or the request is not signed with its secret", "mismatch", 2)}


@pytest.mark.parametrize("zone", [{"__ZONE_NAME": "z"}, {"__ZONE_NAME": "z", "__ZONE_MODE": "true"}])
def test_zone_fields_may_be_signed_or_added_afterwards(zone: dict[str, str]) -> None:
    """Java adds them after signing; a repeated request is signed with them."""
    before = signed(replace(JSON, ext_fields={**(JSON.ext_fields or {}), **zone}))
    after = signed(JSON)
    after = replace(after, ext_fields={**(after.ext_fields or {}), **zone})

    assert [verifier().verify(before), verifier().verify(after)] == [Signer("orders", Recipe.ROCKETMQ)] * 2


@pytest.mark.parametrize(
    "changed",
    [
        {"code": RequestCode.DELETE_KV_CONFIG},
        {"opaque": 8},
        {"flag": FLAG_ONEWAY},
        {"version": 1},
        {"body": b"other"},
    ],
    ids=str,
)
def test_native_signature_covers_header_and_body(changed: dict[str, Any]) -> None:
    """A signature is valid for its own request only."""
    assert reason(replace(signed(NATIVE), **changed)) == "mismatch"


@given(st.dictionaries(texts, texts, max_size=4), st.dictionaries(texts, texts, max_size=4))
def test_native_signature_covers_every_ext_field(ours: dict[str, str], theirs: dict[str, str]) -> None:
    """The signature covers names, values and their boundaries, zone fields included."""
    signature = (signed(replace(NATIVE, ext_fields={})).ext_fields or {}).keys()
    assume(ours != theirs)
    assume(not signature & {*ours, *theirs})
    fields = signed(replace(NATIVE, ext_fields=ours)).ext_fields or {}
    moved = {**theirs, **{name: fields[name] for name in signature}}

    assert reason(replace(NATIVE, ext_fields=moved)) == "mismatch"


@pytest.mark.parametrize("body", [b"other", b""])
def test_rocketmq_signature_covers_values_and_body(body: bytes) -> None:
    """Uncovered parts, such as the code, make it weaker than a native signature."""
    request = signed(JSON)

    assert reason(replace(request, body=body)) == "mismatch"
    assert reason(replace(request, ext_fields={**(request.ext_fields or {}), "value": "w"})) == "mismatch"
    assert verifier().verify(replace(request, code=RequestCode.DELETE_KV_CONFIG)) is not None


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"hmacSha256": None}, "field Signature is missing"),
        ({"signedAt": None}, "field signedAt: '': not a time in ms"),
        ({"signedAt": "-1"}, "field signedAt: '-1': not a time in ms"),
        ({"signedAt": "\u0661"}, "field signedAt: '\u0661': not a time in ms"),
        ({"signedAt": "1" * 16}, "field signedAt: '1111111111111111': not a time in ms"),
        ({"nonce": None}, "field nonce of 0 characters, limit 64"),
        ({"nonce": "n" * 65}, "field nonce of 65 characters, limit 64"),
    ],
)
def test_malformed_signature_is_refused_by_field(fields: dict[str, str | None], remark: str) -> None:
    """The check precedes any cryptography and depends only on the request."""
    changed = {**(signed(NATIVE).ext_fields or {}), **fields}
    command = replace(NATIVE, ext_fields={name: value for name, value in changed.items() if value is not None})

    with pytest.raises(SignatureError) as caught:
        verifier().verify(command)

    assert (str(caught.value), caught.value.reason, caught.value.access_key) == (remark, "malformed", "orders")


@given(
    st.builds(
        RemotingCommand,
        st.integers(-(1 << 15), (1 << 15) - 1),
        opaque=st.integers(-(1 << 31), (1 << 31) - 1),
        flag=st.sampled_from([0, FLAG_ONEWAY]),
        version=st.integers(0, (1 << 15) - 1),
        # the binary header drops empty names
        ext_fields=st.none() | st.dictionaries(st.text(min_size=1, max_size=8), texts, max_size=6),
        body=st.binary(max_size=64),
        serialize_type=st.sampled_from(SerializeType),
    )
)
def test_every_sendable_request_can_be_signed(command: RemotingCommand) -> None:
    """The signature is valid after encoding and decoding in any header."""
    sent = signed(command)
    (frame,) = FrameReader().receive_data(encode_command(sent))
    recipe = Recipe.NATIVE if command.is_native else Recipe.ROCKETMQ

    assert verifier().verify(decode_frame(frame)) == Signer("orders", recipe)


@pytest.mark.parametrize(("window", "when"), [(60.0, "60 s ago"), (-60.0, "60 s in the future")])
def test_native_signature_is_valid_within_the_window_only(window: float, when: str) -> None:
    """The window covers both directions to the last millisecond; the remark names the clocks to compare."""
    clock = FakeClock()
    clock.step_wall(window)
    assert verifier(clock).verify(signed(NATIVE)) == Signer("orders", Recipe.NATIVE)

    clock.step_wall(window / 60_000)
    with pytest.raises(SignatureError) as caught:
        verifier(clock).verify(signed(NATIVE))

    assert caught.value.reason == "stale"
    assert str(caught.value) == f"signed {when} by this server's clock, limit 60 s: compare the clocks"


def test_replay_is_refused_and_a_new_signature_accepted() -> None:
    """A native signature is valid once; RocketMQ's has no time and can be replayed for ever."""
    judge = verifier()
    first = signed(NATIVE)
    judge.verify(first)
    judge.verify(signed(NATIVE))

    assert reason(first, judge) == "replayed"
    old = signed(JSON)
    assert judge.verify(old) == judge.verify(old)


@given(
    st.lists(
        st.tuples(st.sampled_from(["orders", "rotated"]), st.integers(-70, 70), st.integers(-40, 130)), max_size=40
    ),
    st.integers(1, 6),
)
def test_no_request_is_admitted_twice(steps: Sequence[tuple[str, int, int]], max_remembered: int) -> None:
    """Every copy of a request is refused, for any clock and any limit of remembered signatures."""
    clock = FakeClock()
    judge = verifier(clock, max_remembered=max_remembered)
    admitted: list[RemotingCommand] = []
    for number, (key, ahead, step) in enumerate(steps):
        now_ms = int(clock.wall() + ahead) * 1000
        fields = sign_native(NATIVE, key, SECRETS[key][0], now_ms=now_ms, nonce=str(number))
        request = replace(NATIVE, ext_fields=fields)
        try:
            judge.verify(request)
        except SignatureError as error:
            assert error.reason == "stale"  # noqa: PT017 - most copies are not stale
        else:
            admitted.append(request)
        for copy in admitted:
            assert reason(copy, judge) in {"replayed", "stale"}
        clock.step_wall(step)


def test_busy_key_shortens_only_its_own_window() -> None:
    """Current requests of the busy key are admitted, and other keys keep their window."""
    clock = FakeClock()
    judge = verifier(clock, max_remembered=3)
    credentials = Credentials("rotated", b"new-secret", clock.wall)
    other = Credentials("orders", b"12345678", clock.wall).sign(NATIVE)
    late = credentials.sign(NATIVE)
    for _ in range(10):
        clock.step_wall(1)
        judge.verify(credentials.sign(NATIVE))

    assert reason(late, judge) == "stale"
    assert judge.verify(other) == Signer("orders", Recipe.NATIVE)
