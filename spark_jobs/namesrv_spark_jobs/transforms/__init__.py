"""The analysis: functions from DataFrames to DataFrames."""
