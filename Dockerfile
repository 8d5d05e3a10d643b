# The images of massgend. The first stage is where agents work, the second one is the daemon in a container.
#   docker build --target sandbox -t massgend/sandbox .     (scripts/image does it, also where no registry answers)
# Nothing here needs BuildKit: the classic builder of older engines builds the same.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS sandbox
ENV LANG=C.UTF-8
RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update \
 && apt-get install --yes --no-install-recommends \
      bash build-essential ca-certificates curl diffutils fd-find file git git-lfs jq less nodejs npm patch procps \
      python3 python3-pip python3-pytest python3-venv ripgrep sqlite3 unzip xz-utils zip \
 && ln -s /usr/bin/fdfind /usr/local/bin/fd \
 && ln -s /usr/bin/python3 /usr/local/bin/python \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* /usr/share/doc/* /usr/share/man/* \
 && groupadd --gid 1000 agent \
 && useradd --uid 1000 --gid 1000 --create-home --home-dir /home/agent --shell /bin/bash agent \
 && install --directory --owner agent --group agent /workspace \
 && install --directory /peers /opt/massgend/bin \
 && ln -s /opt/massgend/bin/massgend-answer /opt/massgend/bin/massgend-vote /usr/local/bin/
USER agent
ENV HOME=/home/agent
WORKDIR /workspace
CMD ["bash"]
