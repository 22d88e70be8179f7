# A host with systemd as process 1, Slurm, and what omfsd imports: tests/containers/test_systemd.py puts omfsd there.
ARG SUITE=bookworm
FROM debian:${SUITE}-slim
RUN apt-get -qq update \
    && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        dbus iproute2 munge openssh-client procps python3-venv slurm-client slurmctld slurmd systemd systemd-sysv \
    && rm -rf /var/lib/apt/lists/* /etc/munge/munge.key \
    && systemctl disable slurmctld slurmd munge \
    && systemctl mask console-getty.service getty.target systemd-logind.service systemd-modules-load.service
COPY requirements.txt /tmp/requirements.txt
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /usr/lib/omfs \
    && PIP_CERT=/etc/ssl/certs/ca-certificates.crt /usr/lib/omfs/bin/pip install --quiet --no-cache-dir \
        --disable-pip-version-check -r /tmp/requirements.txt
STOPSIGNAL SIGRTMIN+3
CMD ["/lib/systemd/systemd"]
