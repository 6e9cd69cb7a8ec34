"""The wire of `namesrv`: RocketMQ's remoting protocol and its native msgpack dialect, without I/O outside `aio`."""
