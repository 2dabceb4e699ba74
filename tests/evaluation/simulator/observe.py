"""What gpuwatch's sources would read of a machine, moment by moment.

Roles and loaders come from gpuwatch's own readers, which are fed with the process table.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpuwatch.core.model import BusySample, Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.jobs.identity import roles
from gpuwatch.jobs.identity.process_facts import Libraries, ProcessFacts
from gpuwatch.jobs.tracking.loader import LoaderSigns, LoaderWatch
from tests.evaluation.simulator.clockwork import Thread
from tests.evaluation.simulator.gauges import UNIX, Gauges, View, read_host, uuid_of
from tests.evaluation.simulator.machine import Device, Machine, Proc

_METER_SECONDS, _FINE_SECONDS = 3.0, 0.2


class Observer:
    def __init__(self, machine: Machine, view: View, start: float) -> None:
        self.machine, self.view, self.start = machine, view, start
        self._gauges = [Gauges(device, view, start) for device in machine.gpus]
        self._watches: dict[int, LoaderWatch] = {}
        self._roles: dict[int, tuple[object, dict[int, roles.Role]]] = {}
        self._members: dict[int, tuple[float, JobMember]] = {}
        self._kernels: dict[int, float] = {}
        self._before: dict[int, roles.Role] = {}

    def watch(self, seconds: float) -> Iterator[Snapshot]:
        machine, view, sequence = self.machine, self.view, 0
        before, at = max(0.0, self.start - view.interval), self.start
        while at <= self.start + seconds:
            machine.world.run(at)
            alive = [proc for proc in machine.procs if proc.alive(at)]
            jobs = self._jobs(alive, before, at) if view.jobs else ()
            yield Snapshot(
                sequence=sequence, taken_at_unix_seconds=UNIX + at, monotonic_seconds=5e4 + at,
                interval_seconds=view.interval, simulated=False,
                host=read_host(machine, alive, before, at) if view.host else Host(name="node"),
                gpus=tuple([gauges.read(before, at) for gauges in self._gauges]),
                processes=tuple(self._rows(alive, jobs, before, at)) if view.jobs else (),
                jobs=jobs
            )  # fmt: skip
            before, sequence = at, sequence + 1
            # A look takes its time, and clocks have their hiccups.
            at += view.interval * (1.0 + abs(machine.world.random.gauss(0.0, 0.003)))

    # Processes

    def _uses(self, proc: Proc) -> list[Device]:
        gpus = self.machine.gpus if self.view.links else []
        return [device for device in gpus if proc.pid in device.memory]

    def _rows(
        self, alive: list[Proc], jobs: tuple[Job, ...], before: float, at: float
    ) -> Iterator[Process]:
        related = {member.pid for job in jobs for member in job.members}
        for proc in alive:
            uses: list[Device | None] = [*self._uses(proc)]
            cpu = proc.main.cpu.mean(before, at) + proc.pool.cpu.mean(before, at)
            for device in uses or ([None] if proc.pid in related else []):
                share, held = None, None
                if device is not None:
                    held = int(device.memory[proc.pid])
                    owned = device.owners.get(proc.pid)
                    share = 0.0 if owned is None else min(1.0, owned.mean(before, at))
                    share = float(round(100.0 * share))
                yield Process(
                    pid=proc.pid, started_at_unix_seconds=UNIX + proc.born,
                    parent_pid=proc.parent, user=proc.user, name=proc.name,
                    command=" ".join(proc.arguments), state=self._state(proc, at),
                    cpu_percent=round(100.0 * cpu, 1),
                    memory_resident_bytes=int(proc.resident + proc.growth * at),
                    threads=proc.thread_count,
                    gpu_uuid=None if device is None else uuid_of(device), gpu_memory_bytes=held,
                    gpu_busy_percent=share if self.view.shares and not self.view.mig else None,
                    gpu_kind=None if device is None
                    else "graphics" if proc.name == "Xorg" else "compute"
                )  # fmt: skip

    @staticmethod
    def _state(proc: Proc, at: float) -> str:
        recent = max(0.0, at - 0.1), at
        if proc.stopped:
            return "T"
        if proc.main.cpu.mean(*recent) > 0.5:
            return "R"
        return "D" if proc.main.disk.mean(*recent) > 0.5 else "S"

    # Jobs

    def _jobs(self, alive: list[Proc], before: float, at: float) -> tuple[Job, ...]:
        by_pid, trees = {proc.pid: proc for proc in alive}, dict[int, list[Proc]]()
        for proc in alive:
            top = proc
            while top.parent in by_pid:
                top = by_pid[top.parent]
            trees.setdefault(top.pid, []).append(proc)
        return tuple(
            [
                self._job(tree, before, at)
                for tree in trees.values()
                if tree[0].name != "Xorg" and any(self._uses(p) or p.framework for p in tree)
            ]
        )

    def _job(self, tree: list[Proc], before: float, at: float) -> Job:
        view, top, cores = self.view, tree[0], self.machine.cores
        loaded = [proc.framework for proc in tree if proc.framework and view.rights]
        assigned = self._assigned(tree)
        ranks = tuple(
            [self._rank(p, tree, assigned, at) for p in tree if assigned[p.pid].name == "rank"]
        )
        throttled = None if cores.quota is None else cores.throttled.mean(before, at)
        uuids = [uuid_of(device) for proc in tree for device in self._uses(proc)]
        workers = [p.main for p in tree if assigned[p.pid].name == "loader_worker"]
        mains = [p.main for p in tree if assigned[p.pid].name == "rank"]
        return Job(
            pid=top.pid, started_at_unix_seconds=UNIX + top.born, attached=view.attached,
            command=" ".join((tree[1] if top.name == "torchrun" and tree[1:] else top).arguments),
            user=top.user, working_directory="/home/mira/exp" if view.rights else None,
            launcher="torchrun" if top.name == "torchrun" else None,
            framework=loaded[0] if loaded else None,
            world_size=len(mains) if len(mains) > 1 and view.rights else None, ranks=ranks,
            members=tuple([self._member(proc, assigned[proc.pid], at) for proc in tree]),
            gpu_uuids=tuple(dict.fromkeys(uuids)), affinity_cores=cores.number,
            quota_cores=cores.quota, usable_cores=float(cores.usable),
            cpu_throttled_percent=None if throttled is None else min(100.0, 100 * throttled),
            main_thread_samples=self._fine(mains, before, at),
            loader_worker_samples=self._fine(workers, before, at), **self._purpose(tree)
        )  # fmt: skip

    def _fine(
        self, threads: list[Thread], before: float, at: float
    ) -> tuple[BusySample, ...] | None:
        if not self.view.attached or not threads:
            return None
        first, last = int(before / _FINE_SECONDS) + 1, int(at / _FINE_SECONDS)
        moments = [place * _FINE_SECONDS for place in range(max(1, first), last + 1)]
        means = [sum([t.cpu.mean(m - _FINE_SECONDS, m) for t in threads]) for m in moments]
        pairs = zip(moments, means, strict=True)
        return tuple(
            [BusySample(UNIX + m, round(100 * mean / len(threads), 1)) for m, mean in pairs]
        )

    def _purpose(self, tree: list[Proc]) -> dict[str, Any]:
        """What a reader of sockets, libraries and names of threads finds."""
        threads = " ".join([name for proc in tree for name in proc.thread_names])
        return {
            "serves": next((proc.serves for proc in tree if proc.serves), None),
            "simulates": next((proc.simulates for proc in tree if proc.simulates), None),
            "collectives": next((one for one in ("nccl", "gloo") if f"pt_{one}" in threads), None),
        }

    def _assigned(self, tree: list[Proc]) -> dict[int, roles.Role]:
        of = tuple([(p.pid, p.name, p.framework, p.thread_names, len(self._uses(p))) for p in tree])
        known = self._roles.get(tree[0].pid)
        if known is None or known[0] != of:
            pids, rights = {proc.pid for proc in tree}, self.view.rights
            evidence = [
                roles.Evidence(
                    facts=ProcessFacts(
                        pid=p.pid, parent=p.parent, started_at=p.born, name=p.name,
                        arguments=p.arguments,
                    ),
                    parent=p.parent if p.parent in pids else None,
                    environment=p.environment if rights else None,
                    threads=frozenset(p.thread_names or (p.name,)),
                    libraries=Libraries(
                        p.framework if rights else None, names_workers=p.modern and rights
                    ),
                    uses_gpu=bool(self._uses(p)),
                    orphaned=p.orphaned,
                )
                for p in tree
            ]  # fmt: skip
            names = roles.names_are_used(evidence)
            found = roles.assign(evidence, names_used=names, before=self._before)
            self._before |= {pid: role for pid, role in found.items() if pid not in self._before}
            self._roles[tree[0].pid] = known = (of, found)
        return known[1]

    def _member(self, proc: Proc, role: roles.Role, at: float) -> JobMember:
        """Rates are taken every few seconds and held in between, unless somebody is attached."""
        before, known = self._members.get(proc.pid, (max(0.0, at - self.view.interval), None))
        apart = 0.0 if self.view.attached else _METER_SECONDS
        state = self._state(proc, at)
        if known is not None and at - before < apart:
            return replace(known, state=state)
        main, pool, rights = proc.main, proc.pool, self.view.rights
        span, size = (before, at), int(proc.resident + proc.growth * at)

        def rate(name: str) -> float:
            return float(sum([getattr(thread, name).mean(*span) for thread in (main, pool)]))

        made = JobMember(
            pid=proc.pid, started_at_unix_seconds=UNIX + proc.born, parent_pid=proc.parent,
            role=role.name, role_sign=role.sign, role_guessed=role.guessed,
            rank=None if role.numbers is None else role.numbers.rank, orphaned=proc.orphaned,
            name=proc.name, command=" ".join(proc.arguments), state=state,
            cpu_percent=round(100.0 * rate("cpu"), 1),
            main_thread_cpu_percent=round(min(100.0, 100.0 * main.cpu.mean(*span)), 1),
            run_queue_wait_percent=round(100.0 * main.queued.mean(*span), 1),
            disk_wait_percent=round(100 * rate("disk"), 1) if self.view.delays else None,
            read_bytes_per_second=rate("read") if rights else None,
            write_bytes_per_second=rate("written") if rights else None,
            voluntary_switches_per_second=round(main.waits.mean(*span), 1),
            involuntary_switches_per_second=round(main.pushed.mean(*span), 1),
            memory_resident_bytes=size,
            memory_proportional_bytes=int(size * 0.7) if rights else None,
            threads=proc.thread_count, **self._traffic(proc, *span)
        )  # fmt: skip
        self._members[proc.pid] = (at, made)
        return made

    def _traffic(self, proc: Proc, before: float, at: float) -> dict[str, Any]:
        if not (self.view.attached and self.view.rights):
            return {}
        threads = (proc.main, proc.pool)
        waits = [thread.socket.mean(max(before, at - 0.05), at) > 0.5 for thread in threads]
        received = sum([thread.received.mean(before, at) for thread in threads])
        return {
            "awaits_network": any(waits), "network_receive_bytes_per_second": received,
            "network_send_bytes_per_second": sum([t.sent.mean(before, at) for t in threads]),
        }  # fmt: skip

    def _rank(
        self, proc: Proc, tree: list[Proc], assigned: dict[int, roles.Role], at: float
    ) -> JobRank:
        workers = [
            p for p in tree
            if assigned[p.pid].name == "loader_worker" and assigned[p.pid].rank_pid == proc.pid
        ]  # fmt: skip
        guessed = sum([assigned[p.pid].guessed for p in workers])
        device = next(iter(self._uses(proc)), None)
        owned = None if device is None else device.owners.get(proc.pid)
        if owned is not None and owned.mean(max(0.0, at - 1.0), at) > 0.0:
            self._kernels.setdefault(proc.pid, at)
        watch = self._watches.setdefault(proc.pid, LoaderWatch(self.start))
        rights = self.view.rights
        facts = watch.update(
            at,
            LoaderSigns(
                age_seconds=at - proc.born,
                named_workers=len(workers) - guessed,
                guessed_workers=guessed,
                workers_age_seconds=at - min([p.born for p in workers]) if workers else None,
                framework=proc.framework if rights else None,
                libraries_readable=rights,
                threads=frozenset(proc.thread_names or (proc.name,)),
                kernel_seconds=at - self._kernels.get(proc.pid, at),
            ),
        )
        numbers = assigned[proc.pid].numbers
        return JobRank(
            pid=proc.pid, started_at_unix_seconds=UNIX + proc.born,
            rank=None if numbers is None else numbers.rank,
            local_rank=None if numbers is None else numbers.local_rank,
            gpu_uuids=tuple([uuid_of(device) for device in self._uses(proc)]),
            loader_workers=facts.workers, loader_workers_sign=facts.workers_sign,
            loader_workers_guessed=facts.workers_guessed, pinned_memory=facts.pinned,
            pinned_memory_sign=facts.pinned_sign
        )  # fmt: skip
