"""The past from heartbeat logs: who was where when, and what other settings would have meant.

`topic.topic_past` and `readings.Readings` read logs, with the packages of the report; `model`, `spans` and `files` need
none of them. Console and `namesrvctl history` import nothing else of the report.
"""
