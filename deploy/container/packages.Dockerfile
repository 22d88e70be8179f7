# A Debian with what builds and checks the packages: tests/containers/test_packages.py. The context is deploy/debian.
ARG SUITE=bookworm
FROM debian:${SUITE}-slim
COPY control /tmp/source/debian/control
RUN apt-get -qq update \
    && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends build-dep /tmp/source \
    && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install lintian \
    && rm -rf /var/lib/apt/lists/* /tmp/source
