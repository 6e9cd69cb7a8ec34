"""The past: brokers, routes and clients in the heartbeat logs, by the staleness report's own analysis."""
