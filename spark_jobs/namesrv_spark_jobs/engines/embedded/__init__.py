"""DuckDB, in the process: no Java, no cluster, one machine."""
