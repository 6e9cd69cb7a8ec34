"""Entry point for `python -m namesrv_spark_jobs`, and for spark-submit where the package is installed."""

import sys

from namesrv_spark_jobs.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
