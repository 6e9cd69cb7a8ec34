"""Clocks, files and loops: what every process of the project needs, below the wire."""
