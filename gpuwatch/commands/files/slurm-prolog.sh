#!/bin/sh
# Prolog in slurm.conf: begin to record the job and its GPUs, as the job's owner.
#
# This ends at once and with 0, whatever becomes of the recording: Slurm drains a node whose
# prolog fails or takes too long. What goes wrong is in the system log, under "gpuwatch".

# Where gpuwatch is installed; and the folder to record to, which all nodes and the controller
# share and in which every user may make files: install -d -g slurm -m 3773 /shared/gpuwatch
PATH=/usr/local/bin:/usr/bin:/bin
FOLDER=/shared/gpuwatch

export PATH
gpus=${CUDA_VISIBLE_DEVICES:-$SLURM_JOB_GPUS}
# In a session of its own, because Slurm kills the prolog's process group when this ends.
[ -z "$gpus" ] || setsid sh -c '"$@" 2>&1 | logger -t gpuwatch &' sh \
    setpriv --reuid="$SLURM_JOB_UID" --regid="$SLURM_JOB_GID" --init-groups \
    gpuwatch record --slurm-job "$SLURM_JOB_ID" --gpu "$gpus" --interval 2s \
    --output "$FOLDER/$SLURM_JOB_ID.$SLURMD_NODENAME.jsonl.zst" < /dev/null > /dev/null 2>&1
exit 0
