# fedrf and its dependencies, for one machine, for KubeRay and for Ray's cluster launcher.
#   docker build --tag fedrf:0.1.0 .    # with CUDA; GPUs need a driver >= 580 on the host, and `docker run --gpus all`
#   docker build --tag fedrf:0.1.0-cpu --build-arg VARIANT=cpu --build-arg TORCH_INDEX=... .
# TORCH_INDEX is the address of PyTorch's CPU wheels: the --index-url of its installation page.
FROM python:3.11.16-slim-bookworm

# The cluster launcher needs rsync and ssh; KubeRay's probes and the health check below need wget. Versions are not
# pinned: a Debian release keeps only the latest version of a package, so a pin would break the build at the next
# update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openssh-client rsync wget \
    && rm -rf /var/lib/apt/lists/*

# Group 0 can use the home folder, because cluster/*.yaml run the container as a user of the host.
RUN useradd --uid 1000 --gid 0 --create-home fedrf \
    && mkdir /home/fedrf/.cache /home/fedrf/.ray /home/fedrf/fedrf-runs \
    && chown -R 1000:0 /home/fedrf \
    && chmod -R g=u /home/fedrf

WORKDIR /opt/fedrf
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# PyTorch is most of the image and changes rarely, so it comes first. Its wheels include CUDA.
ARG VARIANT=cuda
ARG TORCH_INDEX
COPY constraints.txt ./
RUN case "$VARIANT" in \
    cuda) pip install -c constraints.txt torch torchvision ;; \
    cpu) pip install -c constraints.txt --no-deps torch torchvision \
        --index-url "${TORCH_INDEX:?VARIANT=cpu needs --build-arg TORCH_INDEX=, see the top of the Dockerfile}" ;; \
    *) echo "VARIANT=$VARIANT: must be cuda or cpu" >&2; exit 1 ;; \
    esac

# Install the dependencies before the sources are copied: a change of the sources rebuilds only the layers below.
COPY pyproject.toml ./
RUN mkdir fedrf tune && touch README.md LICENSE fedrf/__init__.py tune/__init__.py \
    && pip install -c constraints.txt --editable '.[weights,bayes]'
COPY fedrf fedrf
COPY tune tune
COPY cluster cluster

# NVIDIA_VISIBLE_DEVICES is not set here: a container that was started without a GPU must not see one.
ENV HOME=/home/fedrf RAY_AUTH_MODE=token NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /home/fedrf
# If Ray was started here, its agent must say that the node is alive. The check imports nothing.
# hadolint ignore=DL3025
HEALTHCHECK --interval=1m --timeout=10s --start-period=2m CMD \
    [ ! -e "${RAY_TMPDIR:-/tmp}/ray/session_latest" ] \
    || wget --tries=1 --timeout=5 -qO- http://localhost:52365/api/local_raylet_healthz | grep -q success
CMD ["bash"]
