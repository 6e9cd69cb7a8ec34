"""The staleness report: how long stale routes lasted, read from the heartbeat logs of NameServers."""
