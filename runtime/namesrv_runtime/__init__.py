"""Clocks, files and loops that every process of the project needs, below the wire."""
