#!/usr/bin/env python3
"""One training step of a Llama in PyTorch eager on one CPU thread: the other side of compare_pytorch.py.

Started by compare_pytorch.py with the shape and the variant as one JSON argument. It answers lines on standard
input with lines of JSON on standard output:

  steps N   N timed steps after an untimed one  -> {"seconds": [...], "cpu_seconds": [...], "first_loss": x}
  memory    one step under the profiler         -> {"peak_bytes": n, "resident_bytes": n}
"""
import json
import math
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function
except ImportError as problem:
    sys.exit(f"{sys.argv[0]}: {problem}; scripts/bench/README.md says how to install PyTorch")


@dataclass(frozen=True)
class Shape:
    """The model and the data of a step; names as in a slimpipe configuration."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocabulary: int
    sequence_length: int
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-5


@dataclass(frozen=True)
class Variant:
    """How the step is written where PyTorch offers more than one good way."""
    mixed: str      # "none": all fp32; bf16 by "autocast" over fp32 parameters or "master" copies of bf16 ones
    optimizer: str  # torch.optim.AdamW "fused" or "foreach"


def linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


class RmsNorm(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.hidden))
        self.epsilon = shape.norm_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x [1, S, N, D], rotate-half layout; cos and sin [S, 1, D/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.heads, self.kv_heads, self.head_size = shape.heads, shape.kv_heads, shape.head_size
        self.qkv = linear(shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_size)
        self.output = linear(shape.heads * shape.head_size, shape.hidden)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        joint = self.qkv(x).view(batch, tokens, -1, self.head_size)
        q, k, v = joint.split((self.heads, self.kv_heads, self.kv_heads), dim=2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
            enable_gqa=self.kv_heads != self.heads)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, -1))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_up = linear(shape.hidden, 2 * shape.ffn)
        self.down = linear(shape.ffn, shape.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class DecoderLayer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.attention_norm, self.attention = RmsNorm(shape), Attention(shape)
        self.ffn_norm, self.ffn = RmsNorm(shape), FeedForward(shape)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.norm, self.head = RmsNorm(shape), linear(shape.hidden, shape.vocabulary)
        half = torch.arange(shape.head_size // 2, dtype=torch.float32) * 2 / shape.head_size
        angles = torch.outer(torch.arange(shape.sequence_length), shape.rope_theta ** -half)
        self.register_buffer("cos", angles.cos()[:, None, :])
        self.register_buffer("sin", angles.sin()[:, None, :])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        cos, sin = self.cos, self.sin
        if torch.is_autocast_enabled("cpu"):
            cos, sin = cos.bfloat16(), sin.bfloat16()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class Trainer:
    """The model, its optimizer and one batch of random tokens."""

    def __init__(self, shape: Shape, variant: Variant):
        torch.manual_seed(1)
        self.variant = variant
        self.model = Llama(shape)
        self.tokens, self.targets = torch.randint(shape.vocabulary, (2, 1, shape.sequence_length))
        self.masters = list(self.model.parameters())
        if variant.mixed == "master":
            self.masters = [nn.Parameter(p.detach().clone()) for p in self.model.parameters()]
            self.model.bfloat16()
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1,
                                           **{variant.optimizer: True})

    def step(self) -> torch.Tensor:
        """Forward, backward, clipping of the gradient's norm, update. Returns the loss."""
        with torch.autocast("cpu", torch.bfloat16) if self.variant.mixed == "autocast" else nullcontext():
            logits = self.model(self.tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), self.targets.flatten())
        del logits
        loss.backward()
        if self.variant.mixed == "master":
            self.gradients_to_masters()
        nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.variant.mixed == "master":
            with torch.no_grad():
                torch._foreach_copy_(list(self.model.parameters()), self.masters)
        return loss.detach()

    def gradients_to_masters(self) -> None:
        for parameter, master in zip(self.model.parameters(), self.masters):
            master.grad = parameter.grad.float()
            parameter.grad = None  # at once, so that both copies live for one parameter only

    def resident_bytes(self) -> int:
        """What lives between steps: parameters, their copies, buffers, optimizer state and the batch."""
        state = [t for s in self.optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
        tensors = [*self.model.parameters(), *self.model.buffers(), *self.masters, *state, self.tokens]
        return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def timed_steps(trainer: Trainer, count: int) -> dict:
    first_loss = trainer.step().item()
    seconds, cpu_seconds = [], []
    for _ in range(count):
        start, cpu_start = time.perf_counter(), time.process_time()
        trainer.step()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "first_loss": first_loss}


def step_memory(shape: Shape, variant: Variant) -> dict:
    """Peak of live tensor bytes during a step, from the profiler's record of every allocation and release.

    The profiler runs from before the model exists, so its running total holds everything: parameters, copies,
    gradients, optimizer state, saved activations and the operators' temporary tensors. The second step is read:
    the first makes the optimizer's state. That nothing escapes the record is checked where it can be: at the end
    of the step the running total must be what the trainer holds.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recording:
        trainer = Trainer(shape, variant)
        trainer.step()
        with record_function("measured step"):
            trainer.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recording.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    measured = next(e for e in events if e.get("name") == "measured step" and e.get("cat") == "user_annotation")
    totals = [e["args"]["Total Allocated"] for e in events
              if e.get("name") == "[memory]" and measured["ts"] <= e["ts"] <= measured["ts"] + measured["dur"]]
    resident = trainer.resident_bytes()
    if abs(totals[-1] - resident) > 0.01 * resident:
        raise RuntimeError(f"the profiler counts {totals[-1]} bytes after the step, but {resident} bytes of tensors "
                           "are alive; this PyTorch's record of allocations cannot be used")
    return {"peak_bytes": max(totals), "resident_bytes": resident}


def main() -> int:
    request = json.loads(sys.argv[1])
    shape, variant = Shape(**request["shape"]), Variant(**request["variant"])
    torch.set_num_threads(1)
    trainer = None
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "memory":
            answer = step_memory(shape, variant)
        else:
            trainer = trainer or Trainer(shape, variant)
            answer = timed_steps(trainer, int(arguments[0]))
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
