"""Readings of logs, with the packages of the report; all other modules of the history need no such package."""
