"""The heartbeat log: what is written about brokers, routes and answers, and when."""
