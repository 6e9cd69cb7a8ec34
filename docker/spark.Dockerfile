# The staleness report with Spark, also for the master and the workers of a Spark cluster.
# Build from the top of the repository: docker build --file docker/spark.Dockerfile --tag namesrv-staleness .
# The base image must be Debian 12, which has Java 17, with python3 3.11 to 3.13 and its venv module; `make pin-bases`
# updates the digest.
ARG BASE_IMAGE=docker.io/library/python:3.13.16-slim-bookworm@sha256:a1165e272e578941b84abc79e4ab38a0305cd12803a5c4247979ac7655f4d641

FROM ${BASE_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv /build
COPY locks/spark.txt locks/
# Later steps install from /wheels only, so every package has the hash in the lock.
# PySpark is published as source only. Without PEP 517, Debian's pip builds the source without its build requirements.
RUN PIP_USE_PEP517=1 /build/bin/python -m pip --no-cache-dir wheel --no-deps --require-hashes --requirement locks/spark.txt --wheel-dir /wheels
COPY . .
# SPARK_HOME needs a path without Python's version, hence the symbolic link.
RUN /build/bin/python -m pip install --no-index --find-links /wheels hatchling \
    && /build/bin/python -m tools.dist /wheels namesrv-report \
    && python3 -m venv --without-pip /opt/namesrv \
    && /build/bin/python -m pip --python /opt/namesrv/bin/python install --no-index --find-links /wheels 'namesrv-report[spark]' \
    && ln -s "$(/opt/namesrv/bin/python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')" /opt/namesrv/spark

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="namesrv-staleness" \
    org.opencontainers.image.description="Reports from NameServers' heartbeat logs how long stale routes lasted" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    namesrv.sbom="/opt/namesrv/sbom.cdx.json"
# Debian's mirrors delete a version when the next one is released, so a build with pinned versions would soon fail.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build /opt/namesrv /opt/namesrv
COPY docker/sbom.py /opt/namesrv/
# Remove pip, which only an intruder would use. Compile the standard library, of which the base image has no bytecode: on
# a read-only root each start would compile it. Give the directory of the report to the container's user.
RUN find / -xdev \( -path '*/site-packages/pip*' -o -path '*/dist-packages/pip*' -o -path '*/ensurepip' \
        -o -path '*/bin/pip*' \) -prune -exec rm -rf {} + \
    && python3 -m compileall -qq -x '/(idlelib|lib2to3|tkinter|turtledemo|pydoc_data|site-packages|dist-packages)/' \
        "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')" \
    && install -d -o 10001 -g 10001 -m 0750 /report /logs \
    && printf 'spark:x:10001:10001::/tmp:/usr/sbin/nologin\n' >>/etc/passwd \
    && /opt/namesrv/bin/python -I /opt/namesrv/sbom.py /opt/namesrv/sbom.cdx.json
ENV PATH=/opt/namesrv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SPARK_HOME=/opt/namesrv/spark \
    PYSPARK_PYTHON=/opt/namesrv/bin/python \
    SPARK_NO_DAEMONIZE=1
# Spark writes to its working directory, which needs a tmpfs if the root is read-only.
WORKDIR /tmp
USER 10001:10001
VOLUME ["/report"]
STOPSIGNAL SIGTERM
# A batch job has no health to check; compose.yml has the checks of the master and the workers.
HEALTHCHECK NONE
ENTRYPOINT ["/opt/namesrv/bin/namesrv-staleness"]
CMD ["--help"]
