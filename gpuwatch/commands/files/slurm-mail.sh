#!/bin/sh
# MailProg in slurm.conf, which Slurm calls as: slurm-mail.sh -s SUBJECT ADDRESS
# Sends what the epilogs wrote about a job that has ended. The mail is sent in any case.

# Where mail is; and the folder that the prolog records to:
PATH=/usr/local/bin:/usr/bin:/bin
FOLDER=/shared/gpuwatch

export PATH
subject=$2 address=$3
set -- "$FOLDER/$SLURM_JOB_ID".*.jsonl.zst

undiagnosed() {
    for recording in "$@"; do
        [ -e "$recording" ] && [ ! -e "${recording%.jsonl.zst}.txt" ] && return 0
    done
    return 1
}

diagnoses() {
    for recording in "$@"; do
        text=${recording%.jsonl.zst}.txt
        [ -f "$text" ] || continue
        # Any user may make files there, and links to any file: only those of the job's owner go
        # into the mail.
        {
            [ "$(stat -Lc %u /dev/fd/0)" = "$SLURM_JOB_UID" ] || continue
            [ $# = 1 ] || printf '%s\n\n' "${recording#"$FOLDER/"}"
            head -c 100000
        } < "$text"
    done
}

case $subject in
    *" Ended,"* | *" Failed,"*)
        # Slurm ends this after 120 s.
        seconds=0
        while undiagnosed "$@" && [ $((seconds += 1)) -le 100 ]; do sleep 1; done
        diagnoses "$@" 2> /dev/null | mail -s "$subject" "$address"
        ;;
    *) mail -s "$subject" "$address" < /dev/null ;;
esac
