"""The embedded engine: DuckDB in this process, without Java or a cluster."""
