"""The staleness analysis as functions that take DataFrames and return DataFrames."""
