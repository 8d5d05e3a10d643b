# The images of massgend: `sandbox`, in which agents work, and `daemon`, the daemon in a container.
#   sandbox:  make image          (scripts/image; also where no image registry answers)
#   daemon:   make daemon-image   (how to run it: docs/install.md)
# Nothing here needs BuildKit; the classic builder of older engines builds the same.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS sandbox
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="massgend sandbox" \
      org.opencontainers.image.description="What a coding agent of massgend finds in its container" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
ENV LANG=C.UTF-8
# A build that is cut short is thrown away, so dpkg need not sync each of some 450 packages to disk.
RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update \
 && apt-get install --yes --no-install-recommends --option Dpkg::Options::=--force-unsafe-io \
      bash ca-certificates curl diffutils fd-find file g++ gcc git git-lfs jq less libc6-dev make nodejs npm patch procps \
      python3 python3-pip python3-pytest python3-venv ripgrep sqlite3 unzip xz-utils zip \
 && ln -s /usr/bin/fdfind /usr/local/bin/fd \
 && ln -s /usr/bin/python3 /usr/local/bin/python \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* \
      /usr/share/doc/* /usr/share/man/* /usr/share/locale/* \
 && groupadd --gid 1000 agent \
 && useradd --uid 1000 --gid 1000 --create-home --home-dir /home/agent --shell /bin/bash agent \
 && install --directory --owner agent --group agent /workspace \
 && install --directory /peers \
 && ln -s /opt/massgend/bin/massgend-answer /opt/massgend/bin/massgend-vote /usr/local/bin/
# The daemon mounts its own copy over this one, so that an older image still speaks with a newer daemon.
COPY sandboxes/inside /opt/massgend
USER agent
ENV HOME=/home/agent
WORKDIR /workspace
CMD ["bash"]

FROM ${BASE} AS daemon-packages
RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
COPY . /src
# With a wheelhouse from the host (dist/wheels, made by `make daemon-image`) the build asks no package index: no proxy, CA
# or credential of the host has to come in here. Without one, pip asks PyPI. The lock file is a constraint, because it
# holds the development packages as well.
WORKDIR /src
RUN python3 -m venv /opt/massgend \
 && sed -e '/--hash/d' -e 's/ \\$//' requirements.lock >pins \
 && if ls dist/wheels/massgend-*.whl >/dev/null 2>&1; \
    then set -- --no-index --find-links dist/wheels dist/wheels/massgend-*.whl; \
    else set -- .; fi \
 && /opt/massgend/bin/pip install --no-cache-dir --no-compile --constraint pins "$@"

FROM ${BASE} AS daemon
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="massgend daemon" \
      org.opencontainers.image.description="Several coding agents on one task, each in its own container" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
ENV LANG=C.UTF-8 PYTHONUNBUFFERED=1
RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=daemon-packages /opt/massgend /opt/massgend
ENV PATH=/opt/massgend/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["/opt/massgend/bin/python", "-m", "massgend"]
