#!/usr/bin/env python3
"""Compares a training step of slimpipe with PyTorch eager's on one CPU core: tokens/s and peak tensor memory.

Both train the same Llama (RMSNorm, rotary embedding, SwiGLU, untied head) on one sequence with
AdamW and the gradient's norm clipped to 1, in fp32 and in bf16 compute with fp32 master weights. The two take
turns on the same core; medians over the rounds and ratios within a round are printed. See README.md here.

PyTorch is no dependency of slimpipe. To get it:  python3 -m venv venv && venv/bin/pip install torch numpy
and run this script with venv/bin/python.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORKER = Path(__file__).resolve().parent / "pytorch_step.py"
MIB = 1 << 20
# glibc gives large blocks back to the system at every release, and the next step's page faults are paid for.
REUSE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736"}
ALLOCATORS = {"default": {}, "reuse": REUSE}


class Failure(Exception):
    """A sentence for the user; the script ends with status 2."""


@dataclass(frozen=True)
class Way:
    """How PyTorch is used; pytorch_step.py says what mixed and optimizer mean."""
    mixed: str
    optimizer: str = "fused"
    allocator: str = "default"

    def __str__(self) -> str:
        mixed = {"none": "fp32", "autocast": "autocast", "master": "bf16 weights, fp32 master copies"}[self.mixed]
        memory = {"default": "default malloc", "reuse": "malloc that keeps freed memory"}[self.allocator]
        return f"{mixed}, {self.optimizer} AdamW, {memory}"


class PyTorch:
    """A process that holds the model and takes steps when asked."""

    def __init__(self, shape: dict, way: Way, core: int):
        self.errors = tempfile.TemporaryFile("w+")  # not a pipe, which stops the process when nobody reads it
        request = {"shape": shape, "variant": {"mixed": way.mixed, "optimizer": way.optimizer}}
        self.process = subprocess.Popen([sys.executable, str(WORKER), json.dumps(request)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        env={**os.environ, **ALLOCATORS[way.allocator]},
                                        preexec_fn=lambda: os.sched_setaffinity(0, {core}))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def ask(self, command: str) -> dict:
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            raise Failure(f"the PyTorch process ended with status {status} at '{command}':\n"
                          f"{self.errors.read().strip()}")
        return json.loads(line)


def fastest_way(shape: dict, dtype: str, core: int) -> Way:
    """Changes one choice after the other and keeps what takes less CPU time."""
    def seconds(way: Way) -> float:
        with PyTorch(shape, way, core) as pytorch:
            return min(pytorch.ask("steps 2")["cpu_seconds"])

    best = Way("none" if dtype == "fp32" else "master")
    best_seconds = seconds(best)
    changes = [{"optimizer": "foreach"}, {"allocator": "reuse"}]
    for change in changes if dtype == "fp32" else [{"mixed": "autocast"}, *changes]:
        way = replace(best, **change)
        way_seconds = seconds(way)
        print(f"  {way}: {way_seconds:.2f} s a step; {best}: {best_seconds:.2f} s", flush=True)
        if way_seconds < best_seconds:
            best, best_seconds = way, way_seconds
    return best


def slimpipe_step(options: argparse.Namespace, shape: dict, dtype: str) -> dict:
    command = [str(options.slimpipe), "bench", "step", "--format", "json", "--dtype", dtype,
               "--repeats", str(options.steps), "--layers", str(shape["layers"]), "--hidden", str(shape["hidden"]),
               "--head-size", str(shape["head_size"]), "--sequence-length", str(shape["sequence_length"]),
               "--vocabulary", str(shape["vocabulary"]), "--slices", str(options.slices),
               "--recompute", options.recompute]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          preexec_fn=lambda: os.sched_setaffinity(0, {options.core}))
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise Failure(f"'{' '.join(command)}' ended with status {done.returncode}:\n{done.stderr.strip()}")
    result = json.loads(done.stdout)
    for name, value in shape.items():
        if result[name] != value:
            raise Failure(f"slimpipe measured {name} {result[name]}, PyTorch {value}: shape_of() here and "
                          "bench_model() in src/app/bench differ")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**result, "core_share": cpu / wall}


def spread(values: list, form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


@dataclass
class Side:
    """What one of the two reached, a value a round."""
    name: str
    rates: list = field(default_factory=list)   # tokens/s
    shares: list = field(default_factory=list)  # part of the core's time that it got
    losses: list = field(default_factory=list)  # of the first step of the round
    peak_bytes: int = 0

    def print(self, detail: str = "") -> None:
        print(f"  {self.name}: {spread(self.rates, '.0f')} tokens/s; peak tensor memory "
              f"{self.peak_bytes / MIB:.1f} MiB{detail}; first loss {self.losses[0]:.3f}; "
              f"{min(self.shares):.0%} or more of the core")


def compare(options: argparse.Namespace, shape: dict, dtype: str) -> None:
    print(f"{dtype}: choosing PyTorch's fastest way", flush=True)
    way = fastest_way(shape, dtype, options.core)
    ours, theirs = Side("slimpipe"), Side(f"PyTorch ({way})")
    with PyTorch(shape, way, options.core) as pytorch:
        for _ in range(options.rounds):
            if not options.pytorch_only:
                result = slimpipe_step(options, shape, dtype)
                ours.rates.append(statistics.median(result["tokens_per_second"]))
                ours.shares.append(result["core_share"])
                ours.losses.append(result["first_loss"])
                ours.peak_bytes = result["peak_bytes"]
            answer = pytorch.ask(f"steps {options.steps}")
            theirs.rates.append(shape["sequence_length"] / statistics.median(answer["seconds"]))
            theirs.shares.append(sum(answer["cpu_seconds"]) / sum(answer["seconds"]))
            theirs.losses.append(answer["first_loss"])
    with PyTorch(shape, way, options.core) as pytorch:
        memory = pytorch.ask("memory")
    theirs.peak_bytes = memory["peak_bytes"]

    print(f"{dtype}:")
    theirs.print(f", of which {memory['resident_bytes'] / MIB:.1f} MiB stay between steps")
    if not options.pytorch_only:
        ours.print()
        ratios = [our / their for our, their in zip(ours.rates, theirs.rates)]
        print(f"  slimpipe : PyTorch: tokens/s {spread(ratios, '.2f')}; peak tensor memory "
              f"{ours.peak_bytes / theirs.peak_bytes:.2f}")
    if min(ours.shares + theirs.shares) < 0.9:
        print("  note: other processes used this core meanwhile; measure again on a quiet machine")


def compare_memory(options: argparse.Namespace, shape: dict, dtype: str) -> None:
    """Against every way PyTorch has, since none is known to be the fastest here."""
    ours = slimpipe_step(options, shape, dtype)["peak_bytes"]
    print(f"{dtype}:\n  slimpipe: peak tensor memory {ours / MIB:.1f} MiB", flush=True)
    for mixed in ("none",) if dtype == "fp32" else ("master", "autocast"):
        way = Way(mixed)
        with PyTorch(shape, way, options.core) as pytorch:
            theirs = pytorch.ask("memory")["peak_bytes"]
        print(f"  PyTorch ({way}): peak tensor memory {theirs / MIB:.1f} MiB; slimpipe : PyTorch {ours / theirs:.2f}",
              flush=True)


def shape_of(options: argparse.Namespace) -> dict:
    """The model of `slimpipe bench step`: as many K,V heads as heads, FFN 8/3 of hidden in steps of 128."""
    heads = options.hidden // options.head_size
    return {"layers": options.layers, "hidden": options.hidden, "heads": heads,
            "kv_heads": heads, "head_size": options.head_size,
            "ffn": (options.hidden * 8 // 3 + 127) // 128 * 128, "vocabulary": options.vocabulary,
            "sequence_length": options.sequence_length}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slimpipe", type=Path, default=ROOT / "build" / "slimpipe", help="the built program")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core both run on")
    parser.add_argument("--rounds", type=int, default=5, help="turns each takes")
    parser.add_argument("--steps", type=int, default=2, help="timed steps a turn, after an untimed one")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), action="append", help="default: both")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--sequence-length", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=257, help="257: bytes, 32000: Llama's")
    parser.add_argument("--slices", type=int, default=1, help="slimpipe's slices of the sequence")
    parser.add_argument("--recompute", choices=("none", "selective"), default="none",
                        help="slimpipe's memory.recompute")
    parser.add_argument("--memory-only", action="store_true",
                        help="no timing: peak tensor memory alone, which no other process disturbs")
    parser.add_argument("--pytorch-only", action="store_true", help="measure PyTorch without slimpipe")
    options = parser.parse_args()
    if min(options.rounds, options.steps) < 1:
        parser.error("--rounds and --steps: expected 1 or more")
    if options.hidden % options.head_size != 0 or options.head_size % 8 != 0:
        parser.error(f"--head-size {options.head_size}: expected a multiple of 8 that divides --hidden "
                     f"{options.hidden}")
    if options.memory_only and options.pytorch_only:
        parser.error("--memory-only compares with slimpipe: expected without --pytorch-only")
    if options.core not in os.sched_getaffinity(0):
        parser.error(f"--core {options.core}: expected one of {sorted(os.sched_getaffinity(0))}")
    return options


def pytorch_version() -> str:
    try:
        import torch
    except ImportError as error:
        raise Failure(f"PyTorch cannot be imported ({error}). Get it with 'python3 -m venv venv && "
                      "venv/bin/pip install torch numpy' and run this script with venv/bin/python.") from error
    return f"{torch.__version__} ({torch.backends.cpu.get_cpu_capability()})"


def main() -> int:
    options = parse_options()
    try:
        version = pytorch_version()
        if not options.pytorch_only and not os.access(options.slimpipe, os.X_OK):
            raise Failure(f"{options.slimpipe} is no program. Build slimpipe, or name it with --slimpipe.")
        shape = shape_of(options)
        sizes = ", ".join(f"{name} {value}" for name, value in shape.items())
        print(f"PyTorch {version}, core {options.core}, {options.rounds} rounds of {options.steps} steps\n{sizes}")
        for dtype in options.dtype or ("fp32", "bf16"):
            (compare_memory if options.memory_only else compare)(options, shape, dtype)
    except Failure as failure:
        print(f"compare_pytorch.py: {failure}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
