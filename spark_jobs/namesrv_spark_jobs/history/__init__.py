"""History from heartbeat logs: registration periods, routes at a moment, and replays under other settings.

`topic.topic_past` and the modules of `reading` read logs and need the packages of the report; `model`, `spans`, `hours`
and `moments` need no such package. Console and `namesrvctl history` import only this part of the report.
"""
