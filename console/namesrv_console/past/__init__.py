"""The past: what the heartbeat logs say of brokers, routes and clients, by the staleness report's own analysis."""
