# A server of the S3 protocol for docker/compose.yaml's profile `cluster`, at the versions of requirements-s3.lock.
# Built by `./inv docker.build --cluster`, from the same context as the image of everything else.
ARG BASE=debian:bookworm-slim

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
COPY app/requirements-s3.lock /tmp/
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/requirements-s3.lock \
    && /opt/venv/bin/pip uninstall --yes --quiet pip
RUN useradd --create-home --uid 1000 bench
USER bench
EXPOSE 9000
CMD ["/opt/venv/bin/python", "-m", "moto.server", "--host", "0.0.0.0", "--port", "9000"]
