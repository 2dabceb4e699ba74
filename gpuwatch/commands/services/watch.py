"""``gpuwatch watch``: what is found, to a log, a command or a webhook.

Exit codes: 0 when it was stopped or its job has ended, 1 on what --exit-on names.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.commands.diagnose import problem_of
from gpuwatch.commands.manual import find_rule, rules_begun
from gpuwatch.commands.options import Duration, option_json, remote_options, watched_options
from gpuwatch.commands.printing import complain, open_output, print_text
from gpuwatch.commands.watching import terminated_as_interrupted, watch
from gpuwatch.core import lean, units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuwatch.commands.options import Remote, Watched
    from gpuwatch.core.model import Snapshot
    from gpuwatch.diagnosis.finding import Diagnosis
    from gpuwatch.diagnosis.ledger import Episode, Ledger
    from gpuwatch.recording.hosts.remote import RemoteHost

ANY = "any"
EXIT_FOUND = 1
FOR_MOST_SECONDS = 24 * 3600.0
DEMO_SPEED = 20.0
"""Times as fast as a clock: nobody waits for a simulated fault as long as for a real one."""
_RULES: dict[str, Any] = {"multiple": True, "metavar": "RULE", "shell_complete": rules_begun}


@click.command("watch")
@click.option(
    *("--for", "seconds"),
    type=Duration(0.0, FOR_MOST_SECONDS),
    default="1m",
    show_default=True,
    help="How long a finding must hold without a break to be raised; an error is raised at once.",
)
@click.option(
    *("--rule", "rules"),
    help="Only this rule (repeat it for more).  [default: all but info]",
    **_RULES,
)
@click.option("--on-finding", metavar="CMD", help="Run CMD for each event: JSON on standard input.")
@click.option("--shell", is_flag=True, help="Have a shell (/bin/sh) run CMD.")
@click.option(
    "--webhook", envvar="GPUWATCH_WEBHOOK", metavar="URL", help="POST each event to URL as JSON."
)
@click.option(
    "--exit-on", help="End with exit code 1 once this rule is raised (any: whichever).", **_RULES
)
@option_json("Print each event as a line of JSON.")
@watched_options(processes=False)
@remote_options()
def watch_command(
    seconds: float,
    rules: tuple[str, ...],
    on_finding: str | None,
    shell: bool,
    webhook: str | None,
    exit_on: tuple[str, ...],
    as_json: bool,
    watched: Watched,
    remote: Remote,
) -> int:
    """Report findings as they come and go: to a log, a command, a webhook.

    Prints a line when a finding has held for a while (raised), and one when it has been gone for a
    minute (cleared). Runs until Ctrl-C, or with --pid until the job has ended; never ends or
    signals a job. A command that takes over 30 seconds is killed, a webhook is tried four times.
    The time of a simulated machine passes 20 times as fast. See docs/diagnosis.md.
    """
    out = open_output()

    from gpuwatch.commands.services.delivery import Command, Webhook
    from gpuwatch.diagnosis.catalogue import RULES

    only = {find_rule(name, RULES).name for name in rules}
    ends_on = {ANY if name.lower() == ANY else find_rule(name, RULES).name for name in exit_on}
    command = [] if on_finding is None else [Command(on_finding, shell=shell)]
    deliveries = [*command, *([] if webhook is None else [Webhook(webhook)])]

    import asyncio

    from gpuwatch.diagnosis.engine import Engine
    from gpuwatch.outputs.alerts import RAISED, Alerts
    from gpuwatch.outputs.report.model import dumps

    def wanted(one: Episode) -> bool:
        return one.rule in only | ends_on or (one.severity != "info" and not only)

    engine, every, code = Engine(), defaultdict[str, Alerts](lambda: Alerts(wanted, seconds)), 0

    def judge(snapshot: Snapshot, ledger: Ledger, where: str = "") -> bool:
        nonlocal code
        if where not in every and not snapshot.gpus:
            complain(f"{where}{problem_of(snapshot) or 'There is no GPU to look at.'}")
        for event in every[where].push(snapshot, ledger):
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at_unix_seconds))
            print_text(dumps(event, indent=None) if as_json else f"{when} {event.text}", out)
            for one in deliveries:
                one.give(event)
            if event.event == RAISED and ends_on & {ANY, event.finding.rule}:
                code = EXIT_FOUND
        lean.settle()
        if snapshot.sequence % 600 == 599:
            lean.tidy()
        return bool(code)

    def take(snapshot: Snapshot, _passed: float) -> bool:
        engine.push(snapshot)
        return judge(snapshot, engine.ledger)

    hosts = remote.open() if remote else []
    sampler, notes = (None, ()) if hosts else watched.sampler(DEMO_SPEED)
    held = f"a finding is raised once it has held for {units.age(seconds)}"
    for note in (*notes, f"watching; {held} (Ctrl-C ends it)."):
        complain(note)
    # To be stopped is how it ends.
    with contextlib.suppress(KeyboardInterrupt), terminated_as_interrupted():
        try:
            if sampler is None:
                _watch_hosts(hosts, judge)
            else:
                asyncio.run(watch(watched.pid, sampler, take))
            for one in deliveries:
                one.finish()
        finally:
            for started in command:
                started.stop()
    return code


def _watch_hosts(hosts: Sequence[RemoteHost], judge: Callable[..., bool]) -> None:
    """Have ``judge`` look at what comes in from each, by the name it was given, until it says that
    it is enough. Closes ``hosts``."""
    for host in hosts:
        # Nobody looks back.
        host.kept_seconds = 300.0
        host.start()
    judged: dict[str, tuple[Snapshot, Diagnosis]] = {}
    silent: set[str] = set()
    try:
        while True:
            for host in hosts:
                name, latest, why = host.name, host.latest, host.silence
                if why is not None and name not in silent:
                    silent.add(name)
                    complain(f"{name} is not watched: {why.rstrip('.')}.")
                found = None if host.tape is None else host.tape.diagnosis
                before = judged.get(name)
                if why or latest is None or found is None or before == (latest, found):
                    continue
                if name in silent:
                    silent.remove(name)
                    complain(f"{name} is back.")
                elif before is None and host.gpu_only:
                    complain(f"{name} has no gpuwatch: only nvidia-smi is read there.")
                judged[name] = latest, found
                at = latest.taken_at_unix_seconds - host.clock_error_seconds
                named = replace(latest.host, name=name)
                timed = replace(latest, host=named, taken_at_unix_seconds=at)
                if host.tape is not None and judge(timed, host.tape.ledger, f"{name}: "):
                    return
            time.sleep(hosts[0].interval_seconds / 4)
    finally:
        for host in hosts:
            host.leave()
        for host in hosts:
            host.close()
