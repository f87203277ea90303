"""What tests of whole training runs share: a folder with data, runs of the real program on it, their results.

A file of such tests is started as FILE.py SCENARIO SLIMPIPE MPIRUN [ARGUMENT...] and runs one scenario (a
function of it) in a folder of its own; MPIRUN and its arguments start a job when followed by -np N. What
happens in a run is waited for until a limit, at which the test fails.
"""
import contextlib
import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 45  # of everything that is waited for: reached only where a test fails
STEPS = 8
DEVICES = 4
MODEL = """\
model: {layers: 4, hidden: 32, heads: 4, kv_heads: 2, head_size: 8, ffn: 48, vocabulary: 257}
data: {sequence_length: 32, validation_fraction: 0.2}
schedule: {kind: slimpipe, slices: 4}
training: {steps: %d, microbatches: 3, lr: 1e-3, warmup_steps: 2, validation_every: 4, validation_samples: 3}
parallel: {pipeline: %d}
""" % (STEPS, DEVICES)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def wait_for(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        check(time.monotonic() < end, f"waited in vain: {what}")
        time.sleep(0.002)


def dies_with(parent, mpirun):
    """What a started process calls first: when the test's process is killed, however, it does not go on.
    mpirun is told to end, since it has processes to end itself; a program of one process is killed."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG
    death = signal.SIGTERM if mpirun else signal.SIGKILL
    libc = ctypes.CDLL(None, use_errno=True)

    def call():
        if libc.prctl(set_parent_death_signal, ctypes.c_ulong(death)) != 0 or os.getppid() != parent:
            os._exit(125)

    return call


class Job:
    """One started run. Its output is in a file, so that nothing blocks."""

    def __init__(self, command, output, mpirun):
        self.output_path = output
        with output.open("wb") as stream:
            self.process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL, start_new_session=True,
                                            preexec_fn=dies_with(os.getpid(), mpirun))

    def output(self):
        return self.output_path.read_text(errors="replace")

    def wait(self):
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"the run does not end:\n{self.output()}") from None

    def ranks(self):
        """Process numbers by rank of an mpirun job, as far as they have started."""
        found = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                with contextlib.suppress(OSError):  # it may be gone by now
                    environment = Path(f"/proc/{pid}/environ").read_bytes()
                    rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", environment)
                    if rank:
                        found[int(rank[1])] = pid
        return found

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def alive(pid):
    try:
        # The state follows the name in parentheses; a zombie only waits to be collected.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Bench:
    """A scratch folder with data and a configuration, and the means to run on them."""

    def __init__(self, folder, slimpipe, mpirun):
        self.folder, self.slimpipe, self.mpirun = folder, slimpipe, mpirun
        self.jobs = []
        text = folder / "text.txt"
        words = random.Random(1)
        text.write_text(" ".join("".join(words.choices("abcdefgh", k=words.randint(1, 8)))
                                 for _ in range(3000)))
        subprocess.run([slimpipe, "data", "prepare", "-o", folder / "tokens", text], check=True,
                       stdout=subprocess.DEVNULL)
        (folder / "run.yaml").write_text(MODEL)

    def command(self, name, *arguments, processes=0, configuration=None, **settings):
        """Of a run in the folder `name`; `section__key=value` overrides a setting of `configuration`, which is
        the bench's own and complete with the data's place unless it is given."""
        if configuration is None:
            configuration = self.folder / "run.yaml"
            settings.setdefault("data__train", self.folder / "tokens")
        command = [*self.mpirun, "-np", str(processes)] if processes else []
        command += [self.slimpipe, "train", configuration, "--run-dir", self.folder / name]
        command += arguments
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        return list(map(str, command))

    def start(self, name, *arguments, **options):
        return self.start_command(name, self.command(name, *arguments, **options))

    def start_command(self, name, command):
        output = self.folder / f"{name}.{len(self.jobs)}.out"
        job = Job(command, output, command[:1] == self.mpirun[:1])
        self.jobs.append(job)
        return job

    def run(self, name, *arguments, status=0, **options):
        """A run that ends with `status`; returns its output."""
        job = self.start(name, *arguments, **options)
        got = job.wait()
        check(got == status, f"{name}: exit status {got}, expected {status}:\n{job.output()}")
        return job.output()

    def metrics(self, name):
        """Lines of metrics.jsonl by step: one each, in order, in resumed runs too."""
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        steps = [line["step"] for line in lines]
        check(steps == list(range(1, len(steps) + 1)), f"{name}: steps {steps} are not in order")
        return {line["step"]: line for line in lines}

    def numbers(self, name):
        """What must be the same in every layout, exactly."""
        return {step: [line.get(key) for key in ("loss", "grad_norm", "validation_loss", "lr", "tokens")]
                for step, line in self.metrics(name).items()}

    def steps_done(self, name):
        """Finished lines of metrics.jsonl, while the run goes on."""
        path = self.folder / name / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def checkpoint(self, name, step=STEPS):
        """Content of a checkpoint's files by name."""
        folder = self.folder / name / "checkpoints" / f"step-{step:08}"
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def end(self):
        for job in self.jobs:
            if job.process.poll() is None:
                job.end()


def main(*scenarios):
    by_name = {scenario.__name__: scenario for scenario in scenarios}
    name, slimpipe, *mpirun = sys.argv[1:]
    for request in (signal.SIGTERM, signal.SIGINT):  # end in order: the jobs, the folder
        signal.signal(request, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="slimpipe-") as folder:
        bench = Bench(Path(folder), slimpipe, mpirun)
        try:
            by_name[name](bench)
        except AssertionError as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            return 1
        finally:
            bench.end()
    return 0
