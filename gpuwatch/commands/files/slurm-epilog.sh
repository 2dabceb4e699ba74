#!/bin/sh
# Epilog in slurm.conf: end the recording and write the diagnosis beside it, as the job's owner.
#
# This ends at once and with 0, whatever becomes of the diagnosis: Slurm drains a node whose
# epilog fails or takes too long. What goes wrong is in the system log, under "gpuwatch".

# The same as in the prolog:
PATH=/usr/local/bin:/usr/bin:/bin
FOLDER=/shared/gpuwatch

export PATH FOLDER
# The inner shells expand the variables.
# shellcheck disable=SC2016
setsid sh -c '{
    # By its command line, because a recorder of a short job may not have its file yet.
    recorder="gpuwatch record --slurm-job $SLURM_JOB_ID --gpu .*$FOLDER/"
    pkill -f "$recorder"
    for second in 1 2 3 4 5 6 7 8 9 10; do
        pgrep -f "$recorder" > /dev/null || break
        sleep 1
    done
    pkill -KILL -f "$recorder"
    "$@"
    } 2>&1 | logger -t gpuwatch &' sh \
    setpriv --reuid="$SLURM_JOB_UID" --regid="$SLURM_JOB_GID" --init-groups sh -c '
    name=$FOLDER/$SLURM_JOB_ID.$SLURMD_NODENAME
    [ -s "$name.jsonl.zst" ] || exit 0
    # A new file that is renamed: no link that somebody put there is followed.
    new=$(mktemp "$name.XXXXXXXX") || exit
    timeout -k 5 600 nice gpuwatch diagnose "$name.jsonl.zst" > "$new"
    chmod 640 "$new"
    [ -s "$new" ] && mv -fT "$new" "$name.txt"
    rm -f "$new"
    ' < /dev/null > /dev/null 2>&1
exit 0
