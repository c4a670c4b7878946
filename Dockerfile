# fedrf and all it needs, for one machine, for KubeRay and for Ray's cluster launcher.
#   docker build --tag fedrf:0.1.0 .    # with CUDA; GPUs need a driver >= 580 on the host, and `docker run --gpus all`
#   docker build --tag fedrf:0.1.0-cpu --build-arg VARIANT=cpu --build-arg TORCH_INDEX=... .
# TORCH_INDEX is the address of PyTorch's wheels for CPUs: the --index-url of its installation page.
FROM python:3.11.16-slim-bookworm

# For the cluster launcher rsync and ssh, for KubeRay's probes wget. Debian keeps one version of a package in a release:
# a pin would break the build, and hold nothing.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openssh-client rsync wget \
    && rm -rf /var/lib/apt/lists/*

# Whoever is in group 0 may use the home folder: cluster/*.yaml run the container as a user of the host.
RUN useradd --uid 1000 --gid 0 --create-home fedrf \
    && mkdir /home/fedrf/.cache /home/fedrf/.ray /home/fedrf/fedrf-runs \
    && chown -R 1000:0 /home/fedrf \
    && chmod -R g=u /home/fedrf

WORKDIR /opt/fedrf
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# Nearly all of the image, so it comes first: wheels bring their own CUDA.
ARG VARIANT=cuda
ARG TORCH_INDEX
COPY constraints.txt ./
RUN case "$VARIANT" in \
    cuda) pip install -c constraints.txt torch torchvision ;; \
    cpu) pip install -c constraints.txt --no-deps torch torchvision \
        --index-url "${TORCH_INDEX:?VARIANT=cpu needs --build-arg TORCH_INDEX=, see the top of the Dockerfile}" ;; \
    *) echo "VARIANT=$VARIANT: must be cuda or cpu" >&2; exit 1 ;; \
    esac

# Installed in place, before there is anything to install: a change of the sources changes only the layers below.
COPY pyproject.toml ./
RUN mkdir fedrf tune && touch README.md LICENSE fedrf/__init__.py tune/__init__.py \
    && pip install -c constraints.txt --editable '.[weights,bayes]'
COPY fedrf fedrf
COPY tune tune
COPY cluster cluster

# NVIDIA_VISIBLE_DEVICES is left to whoever starts the container: a head that was given no GPU must not see one.
ENV HOME=/home/fedrf RAY_AUTH_MODE=token NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /home/fedrf
HEALTHCHECK --interval=5m --timeout=1m --start-period=1m CMD ["fedrf", "doctor"]
CMD ["bash"]
