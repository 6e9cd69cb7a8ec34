"""What `python -m namesrv_spark_jobs` runs, and spark-submit where the package is installed."""

import sys

from namesrv_spark_jobs.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
