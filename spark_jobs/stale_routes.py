"""Entry point of `spark-submit --py-files dist/namesrv_spark_jobs.zip spark_jobs/stale_routes.py ...`."""

import sys

from namesrv_spark_jobs.command.cli import main

if __name__ == "__main__":
    sys.exit(main())
