"""Contents of agent.toml, and errors that say what is wrong with it."""

import re
from pathlib import Path

import pytest

from namesrv_broker_agent import AgentSettings, TopicConfig
from namesrv_broker_agent import config_file as documented
from namesrv_broker_agent.config_file import AgentConfig, ConfigFileError, read_config

BROKER = """\
cluster_name = "c1"
broker_name = "broker-a"
broker_addr = "10.0.0.5:10911"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, or will be."""
    return tmp_path / "agent.toml"


def test_whole_file(path: Path) -> None:
    """Settings at the top, one table for each topic; what is left out is as TopicConfig has it."""
    path.write_text(
        BROKER
        + """\
name_servers = "10.0.0.1:9876;10.0.0.2:9876"
heartbeat_seconds = 10
state_file = "topics.json"

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

    assert AgentConfig(
        AgentSettings(
            cluster_name="c1",
            broker_name="broker-a",
            broker_addr="10.0.0.5:10911",
            name_servers="10.0.0.1:9876;10.0.0.2:9876",
            heartbeat_seconds=10.0,
            state_file=Path("topics.json"),
        ),
        (TopicConfig("orders", 8, 4, 2, 1), TopicConfig("счета", 16, 16, 6, 0)),
    ) == read_config(path)


def test_no_topics(path: Path) -> None:
    """A broker may begin without."""
    path.write_text(BROKER)

    assert () == read_config(path).topics


def test_documented_file(path: Path) -> None:
    """What the module shows as an example is one."""
    assert documented.__doc__ is not None
    path.write_text(documented.__doc__.partition("\n\n")[2])

    assert (TopicConfig("orders", 8, 8),) == read_config(path).topics


def test_file_of_the_readme(path: Path) -> None:
    """And so is what the README shows."""
    readme = Path(__file__).parents[2] / "broker_agent" / "README.md"
    (example,) = re.findall(r"```toml\n(.*?)```", readme.read_text(), re.DOTALL)
    path.write_text(example)

    assert (TopicConfig("orders", 8, 8, 6),) == read_config(path).topics


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "missing setting cluster_name; missing setting broker_name; missing setting broker_addr"),
        ("cluster_name =", "Invalid value (at end of document)"),
        (BROKER + 'broker_name = "b"', "Cannot overwrite a value (at end of document)"),
        (BROKER + "broker_id = -1", "broker_id: -1: input should be greater than or equal to 0"),
        (BROKER + "brokerId = 0", "unknown setting brokerId"),
        (BROKER + "[[topic]]", "unknown setting topic"),
        (BROKER + "topics = 5", "topics: 5 is not an array of tables, [[topics]]"),
        (BROKER + '[topics]\ntopic_name = "T"', "topics: {'topic_name': 'T'} is not an array of tables, [[topics]]"),
        (BROKER + 'topics = ["T"]', "topic 1 is not a table"),
        (BROKER + "[[topics]]", "topic 1: Object missing required field `topic_name`"),
        (BROKER + '[[topics]]\nname = "T"', "topic 1: unknown field 'name'"),
        (
            BROKER + '[[topics]]\ntopic_name = ""',
            "topic 1: Expected `str` of length >= 1 - at `$.topic_name`",
        ),
        (
            BROKER + '[[topics]]\ntopic_name = "a b"',
            "invalid topic name 'a b': must be 1 to 255 bytes of printable characters without blanks",
        ),
        (BROKER + '[[topics]]\ntopic_name = "T"\nperm = 8', "topic T: perm 8 is not between 0 and 7"),
        (BROKER + '[[topics]]\ntopic_name = "T"\nperm = "rw"', "topic 1: Expected `int`, got `str` - at `$.perm`"),
        (BROKER + '[[topics]]\ntopic_name = "T"\nperm = true', "topic 1: Expected `int`, got `bool` - at `$.perm`"),
        (
            BROKER + '[[topics]]\ntopic_name = "T"\nread_queue_nums = 0',
            "topic T: read_queue_nums 0 is not between 1 and 65535",
        ),
        (BROKER + '[[topics]]\ntopic_name = "T"\n' * 2, "topic T is listed twice"),
    ],
)
def test_wrong_file_is_named_and_what_is_wrong_with_it(path: Path, content: str, message: str) -> None:
    """Path first, then the trouble."""
    path.write_text(content)

    with pytest.raises(ConfigFileError) as raised:
        read_config(path)

    assert f"{path}: {message}" == str(raised.value)


def test_a_name_among_sixty_thousand_that_is_there_twice(path: Path) -> None:
    """It is found in one pass."""
    names = [*range(60_000), 31_415]
    path.write_text(BROKER + "topics = [" + ",".join(f'{{topic_name="T{name}"}}' for name in names) + "]")

    with pytest.raises(ConfigFileError, match=r"topic T31415 is listed twice$"):
        read_config(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file or directory"), (b"\xff", "can't decode byte 0xff")],
    ids=["missing", "no text"],
)
def test_file_that_cannot_be_read(path: Path, content: bytes | None, message: str) -> None:
    """It is named, too."""
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigFileError, match=f"^{path}: .*{message}"):
        read_config(path)
