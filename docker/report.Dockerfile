# The staleness report without Spark and Java, which spark.Dockerfile adds.
# Build from the top of the repository: docker build --file docker/report.Dockerfile --tag namesrv-report .
# The base image must be like Debian, with python3 3.11 or newer and its venv module; `make pin-bases` updates the digest.
ARG BASE_IMAGE=docker.io/library/python:3.13.16-slim-bookworm@sha256:a1165e272e578941b84abc79e4ab38a0305cd12803a5c4247979ac7655f4d641

FROM ${BASE_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv /build
COPY locks/report.txt locks/
# Later steps install from /wheels only, so every package has the hash in the lock.
RUN /build/bin/python -m pip --no-cache-dir wheel --no-deps --require-hashes --requirement locks/report.txt --wheel-dir /wheels
COPY . .
RUN /build/bin/python -m pip install --no-index --find-links /wheels hatchling \
    && /build/bin/python -m tools.dist /wheels namesrv-report \
    && python3 -m venv --without-pip /opt/namesrv \
    && /build/bin/python -m pip --python /opt/namesrv/bin/python install --no-index --find-links /wheels namesrv-report

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="namesrv-report" \
    org.opencontainers.image.description="Reports from NameServers' heartbeat logs how long stale routes lasted" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    namesrv.sbom="/opt/namesrv/sbom.cdx.json"
COPY --from=build /opt/namesrv /opt/namesrv
COPY docker/sbom.py /opt/namesrv/
# Remove pip, which only an intruder would use. Compile the standard library, of which the base image has no bytecode: on
# a read-only root each start would compile it. Give the directory of the report to the container's user.
RUN find / -xdev \( -path '*/site-packages/pip*' -o -path '*/dist-packages/pip*' -o -path '*/ensurepip' \
        -o -path '*/bin/pip*' \) -prune -exec rm -rf {} + \
    && python3 -m compileall -qq -x '/(idlelib|lib2to3|tkinter|turtledemo|pydoc_data|site-packages|dist-packages)/' \
        "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')" \
    && install -d -o 10001 -g 10001 -m 0750 /report \
    && /opt/namesrv/bin/python -I /opt/namesrv/sbom.py /opt/namesrv/sbom.cdx.json
ENV PATH=/opt/namesrv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# `namesrv-staleness compact` writes temporary tables to /tmp, which needs a tmpfs if the root is read-only. A report
# writes its tables to the directory beside its output.
WORKDIR /tmp
USER 10001:10001
VOLUME ["/report"]
STOPSIGNAL SIGTERM
# A batch job has no health to check.
HEALTHCHECK NONE
ENTRYPOINT ["/opt/namesrv/bin/namesrv-staleness"]
CMD ["--help"]
