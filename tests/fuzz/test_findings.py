"""Faults that fuzzing found stay fixed."""

import json

import msgpack
import pytest

from namesrv_remoting.bodies.register import decode_body, decode_native_body
from namesrv_remoting.errors import BadRequestError
from tests.support.steps import finished


@pytest.mark.parametrize("mapping", [{2**31: 0}, {0: 2**31}, {-(2**31) - 1: 0}, {0: 10**30}, {2**64: 0}])
def test_queue_ids_of_static_topics_are_32_bits_wide(mapping: dict[int, int]) -> None:
    """A registration with larger ones was taken, and every native question for the topic then closed a connection."""
    info = {"topic": "t0", "currIdMap": mapping}
    wrapper = {"topicConfigTable": {"t0": {"topicName": "t0"}}, "topicQueueMappingInfoMap": {"t0": info}}
    with pytest.raises(BadRequestError, match="currIdMap"):
        finished(decode_body(json.dumps({"topicConfigSerializeWrapper": wrapper}).encode(), 479, compressed=False))


def test_queue_ids_of_native_static_topics_are_32_bits_wide() -> None:
    """As in JSON."""
    body = {"topic_configs": [], "topic_queue_mapping_info_map": {"t0": {"topic": "t0", "curr_id_map": {0: 2**31}}}}
    with pytest.raises(BadRequestError, match="curr_id_map"):
        finished(decode_native_body(msgpack.packb(body), compressed=False))
