# The staleness report, and the Spark master and workers it can run on.
# From the top of the repository: docker build --file docker/spark.Dockerfile --tag namesrv-staleness .
# The base must be Debian 12 with python3 3.11 to 3.13 and its venv module (Java 17 comes from there); `make pin-bases` writes the digest of today.
ARG BASE_IMAGE=docker.io/library/python:3.13.16-slim-bookworm@sha256:a1165e272e578941b84abc79e4ab38a0305cd12803a5c4247979ac7655f4d641

FROM ${BASE_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv /build
COPY locks/spark.txt locks/
# everything that is installed later comes from /wheels, and nothing gets there whose hash is not in the lock
# PySpark comes as sources: Debian's pip would build them without what they ask for
RUN PIP_USE_PEP517=1 /build/bin/python -m pip --no-cache-dir wheel --no-deps --require-hashes --requirement locks/spark.txt --wheel-dir /wheels
COPY . .
# the link is for SPARK_HOME, which must not depend on Python's version
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
# Debian's mirrors drop a version when the next one comes, so that a pinned one stops building
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
COPY --from=build /opt/namesrv /opt/namesrv
COPY docker/sbom.py /opt/namesrv/
# Without pip, which only an intruder would use. The base has no bytecode of the standard library, and on a read-only
# root each start would compile it anew. The folder of the report belongs to the container's user.
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
# Spark writes beside where it runs: give it a tmpfs when the root is read-only
WORKDIR /tmp
USER 10001:10001
VOLUME ["/report"]
STOPSIGNAL SIGTERM
# a batch job is well as long as it runs; the master and the workers in compose.yml have checks of their own
HEALTHCHECK NONE
ENTRYPOINT ["/opt/namesrv/bin/namesrv-staleness"]
CMD ["--help"]
