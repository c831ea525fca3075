# Two stages: the first installs a virtual environment with pip, the second has only that environment.
# The first compiles the kernels for the CPU "generic" of the image's architecture: numba looks them up by CPU name, so a
# node with another CPU would compile them again at each start.
# The digest is the one that public Dockerfiles name for this tag; compare it with the registry before a release.
FROM python:3.13.14-slim-trixie@sha256:6771159cd4fa5d9bba1258caf0b82e6b73458c694d178ad97c5e925c2d0e1a91 AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN ["python", "-m", "venv", "--without-pip", "/opt/tidegate"]
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
COPY scaler scaler
COPY docs/reference/rules docs/reference/rules
RUN ["python", "-m", "pip", "--python", "/opt/tidegate/bin/python", "install", ".[nvml]"]
WORKDIR /
ENV NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES="" NUMBA_CACHE_DIR=/opt/tidegate/kernels
RUN ["/opt/tidegate/bin/python", "-m", "scaler.compilation"]

FROM python:3.13.14-slim-trixie@sha256:6771159cd4fa5d9bba1258caf0b82e6b73458c694d178ad97c5e925c2d0e1a91
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tidegate" \
      org.opencontainers.image.description="Decides how many GPU replicas a Kubernetes workload needs, and tells KEDA or the HPA" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/tidegate /opt/tidegate
# Only /tmp is written: mount it writable if the root is read-only.
# On the path, so that `kubectl exec deploy/tidegate -- tidegate doctor` finds it.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp PATH=/opt/tidegate/bin:$PATH
# As in the first stage, or the compiled kernels are not found.
ENV NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES="" NUMBA_CACHE_DIR=/opt/tidegate/kernels
USER 65532:65532
WORKDIR /
EXPOSE 6000 8080 8443
ENTRYPOINT ["/opt/tidegate/bin/tidegate"]
CMD ["run", "--config=/etc/tidegate/config/config.yaml"]
