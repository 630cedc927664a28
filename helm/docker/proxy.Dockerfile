# A proxy: it gathers requests for timestamps.
#   docker build -f helm/docker/proxy.Dockerfile -t dodona-proxy:VERSION .   (in the project's root)

# A tag, no digest: each build takes the base's latest fixes. Who wants the very same bytes again gives
# --build-arg BASE=python@sha256:...
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
COPY helm/docker/build.lock helm/docker/server.lock ./
RUN python -m venv --without-pip /opt/dodona \
 && pip install --no-cache-dir --only-binary :all: --require-hashes -r build.lock \
 && pip --python /opt/dodona/bin/python install --no-cache-dir --only-binary :all: --require-hashes -r server.lock
COPY pyproject.toml README.md LICENSE ./
COPY client client
COPY oracle oracle
COPY tablets tablets
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels ./client . \
 && pip --python /opt/dodona/bin/python install --no-cache-dir --no-deps /wheels/*.whl

FROM ${BASE}
# The base has its standard library without bytecode, and nothing can be written where this runs: each
# start, health check and child process would compile what it imports.
RUN python -m compileall -q -x '/(site-packages|tests?)/' "$(python -c 'import os; print(os.path.dirname(os.__file__))')"
COPY --from=build /opt/dodona /opt/dodona
USER 65532:65532
EXPOSE 8501
ENTRYPOINT ["/opt/dodona/bin/python", "-I", "-m", "dodona_oracle", "proxy"]
