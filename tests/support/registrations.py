"""Strategies for registrations."""

from hypothesis import strategies as st

from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig, TopicQueueMappingInfo
from tests.support.commands import INT32

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# lone surrogates have no UTF-8
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
# what the text lines of a compressed registration can carry
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" "), min_size=1, max_size=20)
VERSIONS = st.builds(DataVersion, INT64, INT64, INT64)
MAPPINGS = st.builds(
    TopicQueueMappingInfo,
    topic=st.none() | NAMES,
    bname=st.none() | NAMES,
    scope=st.none() | NAMES,
    epoch=INT64,
    total_queues=INT32,
    dirty=st.booleans(),
    curr_id_map=st.none() | st.dictionaries(INT32, INT32, max_size=4),
)
REGISTRATIONS = st.builds(
    RegisterBrokerBody,
    topic_configs=st.lists(
        st.builds(TopicConfig, NAMES, INT32, INT32, INT32, INT32), max_size=5, unique_by=lambda topic: topic.topic_name
    ).map(tuple),
    data_version=VERSIONS,
    mappings=st.dictionaries(NAMES, MAPPINGS, max_size=3),
    filter_servers=st.lists(NAMES, max_size=3).map(tuple),
)
