#!/bin/bash
# Start Ray on the nodes of one SLURM job and run a command on it:
#
#   sbatch cluster/slurm.sh python -m tune digits
#
# Change the resources below, and add partition and account. One GPU per node serves one client.
#SBATCH --job-name=fedrf
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=12:00:00
# Two minutes before the time limit the command gets SIGTERM, so that it can save a checkpoint.
#SBATCH --signal=B:TERM@120
# Disk space for Ray below /tmp; remove one # if your SLURM manages local disks.
##SBATCH --tmp=20G
set -euo pipefail

if [[ $# -eq 0 || -z ${SLURM_JOB_ID:-} ]]; then
    echo "usage: sbatch [OPTIONS] cluster/slurm.sh COMMAND ..." >&2
    exit 2
fi

# Change: the environment with fedrf, visible on every node; the folder of the data sets (docs/data.md), the same on
# every node. GPUs need a driver >= 580 for the CUDA of torch: `sbatch cluster/slurm.sh fedrf doctor` checks every node.
if [[ -d .venv/bin ]]; then PATH="$PWD/.venv/bin:$PATH"; fi
# export FEDRF_DATA=/scratch/datasets FEDRF_CACHE=/scratch/fedrf-cache
# To copy data sets to the disk of each node first:
# srun --ntasks-per-node=1 rsync --archive /project/datasets/ "$FEDRF_DATA"

# Jobs of other users may run on the same nodes, so this job has its own port, its own folder and a private token. The
# home folder must be the same on all nodes.
port=$((20000 + SLURM_JOB_ID % 10000))
folder=/tmp/ray-$SLURM_JOB_ID
unset RAY_AUTH_TOKEN
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$HOME/.ray/slurm-$SLURM_JOB_ID
(umask 077 && mkdir -p "$HOME/.ray" && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$RAY_AUTH_TOKEN_PATH")

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
ip=$(hostname -I | awk '{print $1}') # of this node, the first of the job; its host name may resolve to 127.0.0.1
export RAY_ADDRESS=${ip:-127.0.0.1}:$port
steps=()

# Start Ray on a node until the step ends. Messages are a few megabytes, so 2 GB of /dev/shm are enough.
start() {
    local host=$1
    srun --nodes=1 --ntasks=1 --nodelist="$host" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
        ray start "${@:2}" --block --num-cpus="${SLURM_CPUS_PER_TASK:-1}" --object-store-memory=2000000000 \
        --resources="{\"$host\": 1}" --min-worker-port=0 --max-worker-port=0 &
    steps+=($!)
}

# End the steps with their processes. `ray stop` would also stop Ray in other jobs of this user on these nodes.
finish() {
    kill "${steps[@]}" 2> /dev/null || true
    wait "${steps[@]}" 2> /dev/null || true
    srun --ntasks-per-node=1 rm -rf "$folder" || true
    rm -f "$RAY_AUTH_TOKEN_PATH"
}
trap finish EXIT

start "${hosts[0]}" --head --node-ip-address="${RAY_ADDRESS%:*}" --port="$port" --temp-dir="$folder" \
    --ray-client-server-port=$((port + 10000)) --dashboard-host=127.0.0.1
until (exec 3<> "/dev/tcp/${RAY_ADDRESS/://}") 2> /dev/null; do
    kill -0 "${steps[0]}" 2> /dev/null || { echo "Ray did not start on ${hosts[0]}; see above" >&2; exit 1; }
    sleep 1
done
for host in "${hosts[@]:1}"; do start "$host" --address="$RAY_ADDRESS"; done
python - "${#hosts[@]}" << 'PY'
import sys
import time

import ray

expected, deadline = int(sys.argv[1]), time.time() + 300
ray.init(log_to_driver=False, logging_level="ERROR")
while (joined := sum(node["Alive"] for node in ray.nodes())) < expected:
    if time.time() > deadline:
        sys.exit(f"only {joined} of {expected} nodes joined Ray within 5 minutes; see above")
    time.sleep(1)
PY

# In the background, so that a signal is forwarded at once. The job's exit code is that of the command.
"$@" &
command=$!
trap 'kill -TERM "$command" 2> /dev/null || true' TERM INT
while true; do
    status=0
    wait "$command" || status=$?
    kill -0 "$command" 2> /dev/null || exit "$status"
done
