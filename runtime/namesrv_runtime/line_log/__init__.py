"""Logs of lines in files: the heartbeat log and the audit trails."""
