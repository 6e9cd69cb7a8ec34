"""Validation of the agent's settings and its file."""

import re
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import AgentSettings, TopicConfig
from namesrv_broker_agent import settings as documented
from namesrv_broker_agent.settings import AgentConfig, ConfigFileError, read_config

NEEDED: dict[str, Any] = {"cluster_name": "c1", "broker_name": "broker-a", "broker_addr": "10.0.0.5:10911"}
BROKER = "".join(f'{name} = "{value}"\n' for name, value in NEEDED.items())
TOPIC = BROKER + '[[topics]]\ntopic_name = "T"\n'


NOT_A_PORT = "is not a host and port (for example 203.0.113.7:30911)"
NAMELESS = "must be 1 to 255 printable characters without blanks"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cluster_name", "", NAMELESS),
        ("broker_name", "x" * 256, NAMELESS),
        ("broker_name", "a\n", NAMELESS),
        ("broker_name", None, "input should be a valid string"),
        ("zone_name", "", NAMELESS),
        ("broker_addr", "10.0.0.5", "address '10.0.0.5' is not host:port or [ipv6]:port"),
        ("broker_addr", "a :1", "must be printable characters without blanks"),
        ("name_servers", "a", "name servers 'a': address 'a' is not host:port or [ipv6]:port"),
        ("broker_id", -1, "input should be greater than or equal to 0"),
        ("broker_id", 1 << 63, "input should be less than 9223372036854775808"),
        ("broker_id", True, "input should be a valid integer"),
        ("protocol", "http", "input should be 'native', 'rocketmq' or 'auto'"),
        ("heartbeat_seconds", 0, "input should be greater than 0"),
        ("heartbeat_seconds", 86_401, "input should be less than or equal to 86400"),
        ("heartbeat_seconds", float("nan"), "input should be a finite number"),
        ("advertised", {"outside": "h"}, f"view outside: 'h' {NOT_A_PORT}"),
        ("advertised_ha", {"outside": "h:0"}, f"view outside: 'h:0' {NOT_A_PORT}"),
        ("advertised", {"": "h:1"}, "name of a view of 0 characters: must be 1 to 255"),
        ("advertised", {str(number): "h:1" for number in range(17)}, "17 views, limit 16"),
        ("expiry_seconds", 30, "must be longer than heartbeat_seconds (30)"),
        ("max_backoff_seconds", 61, "input should be less than or equal to 60"),
        ("client_poll_seconds", -1, "input should be greater than or equal to 0"),
        ("state_file", 5, "not a path"),
        ("state_file", b"topics.json", "not a path"),
    ],
)
def test_wrong_value_is_named(field: str, value: object, message: str) -> None:
    """The message names the field, the value and the reason."""
    with pytest.raises(ValueError, match=f"^{re.escape(f'{field}: {value!r}: {message}')}$"):
        AgentSettings(**{**NEEDED, field: value})


def test_advertised_addresses_need_the_native_protocol() -> None:
    """Apache's server would ignore them."""
    with pytest.raises(ValueError, match=r"^protocol: 'rocketmq': advertised addresses need the native protocol$"):
        AgentSettings(**NEEDED, advertised={"outside": "h:1"}, protocol="rocketmq")


OUTSIDE = {"outside": "203.0.113.7:30911"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file."""
    return tmp_path / "agent.toml"


def test_whole_file(path: Path) -> None:
    """Settings come first, then one table per topic; missing members have TopicConfig's defaults."""
    path.write_text(
        BROKER
        + """\
heartbeat_seconds = 10
state_file = "topics.json"
advertised = { outside = "203.0.113.7:30911" }

[[topics]]
topic_name = "orders"
read_queue_nums = 8
write_queue_nums = 4
perm = 2
topic_sys_flag = 1

[[topics]]
topic_name = "счета"
"""
    )

    assert read_config(path) == AgentConfig(
        AgentSettings(**NEEDED, heartbeat_seconds=10.0, state_file=Path("topics.json"), advertised=OUTSIDE),
        (TopicConfig("orders", 8, 4, 2, 1), TopicConfig("счета", 16, 16, 6, 0)),
    )


def test_byte_order_mark_is_skipped(path: Path) -> None:
    """An editor on Windows may begin the file with a mark, which the daemon's files may have, too."""
    path.write_text("\ufeff" + TOPIC, encoding="utf-8")

    assert read_config(path) == AgentConfig(AgentSettings(**NEEDED), (TopicConfig("T"),))


def test_unreadable_file_is_named_once(path: Path) -> None:
    """The message names a missing file once, and the first byte of a file that is not UTF-8."""
    with pytest.raises(ConfigFileError, match=f"^{re.escape(f'{path}: No such file or directory')}$"):
        read_config(path)
    path.write_bytes(b"# \xff")
    with pytest.raises(ConfigFileError, match=f"^{re.escape(f'{path}: not UTF-8 at byte 2')}$"):
        read_config(path)


def test_documented_files(path: Path) -> None:
    """The examples of module and README are valid; a broker may start without topics."""
    readme = Path(__file__).parents[2] / "broker_agent" / "README.md"
    (example,) = re.findall(r"```toml\n(.*?)```", readme.read_text(), re.DOTALL)
    orders = (TopicConfig("orders", 8, 8),)
    for content, topics in (((documented.__doc__ or "").partition("\n\n")[2], orders), (example, orders), (BROKER, ())):
        path.write_text(content)
        assert read_config(path).topics == topics


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "missing setting cluster_name; missing setting broker_name; missing setting broker_addr"),
        (BROKER + 'broker_name = "b"', "key broker_name is given twice, last in line 4"),
        (BROKER + "brokerId = 0", "unknown setting brokerId (did you mean broker_id?)"),
        (BROKER + "[[topic]]", "unknown setting topic"),
        (BROKER + '[topics]\ntopic_name = "T"', "topics: {'topic_name': 'T'} is not an array of tables, [[topics]]"),
        (BROKER + 'topics = ["T"]', "topic 1 is not a table"),
        (BROKER + "[[topics]]", "topic 1: Object missing required field `topic_name`"),
        (TOPIC + '[[topics]]\nname = "T"', "topic 2: unknown field 'name'"),
        (BROKER + '[[topics]]\ntopic_name = ""', "topic 1: Expected `str` of length >= 1 - at `$.topic_name`"),
        (TOPIC + "perm = 8", "topic T: perm 8 is not between 0 and 7"),
        (TOPIC + 'perm = "rw"', "topic 1: Expected `int`, got `str` - at `$.perm`"),
    ],
)
def test_invalid_file_is_reported_with_its_path(path: Path, content: str, message: str) -> None:
    """The path comes first, then the reason."""
    path.write_text(content)
    with pytest.raises(ConfigFileError, match=f"^{re.escape(f'{path}: {message}')}$"):
        read_config(path)
