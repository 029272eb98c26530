"""What a run tells: JSON lines, TensorBoard, the terminal; and when it must stop.

The terminal and TensorBoard show what `log.jsonl` holds, so no number is known to one alone.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elf_engine.errors import ElfError
from training.config import TrainConfig
from training.data import TrainBatch
from training.mesh import first_process
from training.objective import Split

LOG, EVENTS = "log.jsonl", "tensorboard"
SETTLED = 20  # losses of a kind that make a usual one
MEMORY = 0.95  # of the usual loss
SHOWN_ROWS = 12
Numbers = dict[str, float]


@dataclass
class Progress:
    """What a resumed run goes on from, beside its state. `usual` is the mean and count of losses
    of each kind of step."""

    tokens: float = 0.0
    usual: dict[str, list[float]] = field(default_factory=dict)


def peak_flops(dtype: str) -> float:
    """Floating-point operations a second of matrix products on this machine's devices, measured:
    what a step's own rate is compared with."""
    cpu = jax.default_backend() == "cpu"
    n = 1024 if cpu else 8192
    a = jnp.ones((n, n), jnp.dtype(dtype))
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best = math.inf
    for _ in range(4):
        began = time.perf_counter()
        product(a).block_until_ready()
        best = min(best, time.perf_counter() - began)
    # Devices of a CPU share its cores.
    return 2.0 * n**3 / best * (1 if cpu else jax.device_count())


class Watch:
    """Gathers the steps since the last line. `flops` is of one step, `peak` of the machine, a
    second; 0 leaves the utilisation out."""

    def __init__(
        self, config: TrainConfig, progress: Progress, peak: float = 0.0, quiet: bool = False
    ) -> None:
        self.config, self.progress, self.peak = config, progress, peak
        self.flops = 0.0
        self.quiet = quiet or not first_process()
        self._file = config.directory / LOG
        self._events: Any = None
        if config.watch.tensorboard and first_process():
            from tensorboardX import SummaryWriter

            self._events = SummaryWriter(str(config.directory / EVENTS))
        self._clear()

    def close(self) -> None:
        """Write out what is buffered."""
        if self._events is not None:
            self._events.close()

    def _clear(self) -> None:
        self._began, self._steps, self._new, self._work = time.time(), 0, 0, 0.0
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def go_on(self) -> None:
        """Time spent since the last line on losses, samples and saving is not the steps'."""
        if not self._steps:
            self._began = time.time()

    def limit(self, split: Split) -> float:
        """The loss that stops the run at a step of this kind; infinite at first."""
        mean, count = self.progress.usual.get(_kind(split), (0.0, 0))
        return self.config.watch.stop_factor * mean if count >= SETTLED else math.inf

    def add(self, step: int, batch: TrainBatch, split: Split, metrics: dict[str, Any]) -> None:
        """Count a finished step. Raises ElfError when its loss or gradient is not finite, or its
        loss far above the usual; the state is then as before it."""
        loss = float(metrics["loss"])
        if not bool(metrics["ok"]):
            raise ElfError(self._why(step, batch, split, loss, float(metrics["grad_norm"])))
        mean, count = self.progress.usual.get(_kind(split), (loss, 0))
        mean = loss if count < 1 else MEMORY * mean + (1 - MEMORY) * loss
        self.progress.usual[_kind(split)] = [mean, min(count + 1, SETTLED)]
        self._steps += 1
        new = int(batch.batch.valid.sum()) * jax.process_count()
        self._new += new
        self.progress.tokens += new
        self._work += self.flops
        self._count("loss", loss, 1.0)
        self._count("grad_norm", float(metrics["grad_norm"]), 1.0)
        rows, targets = np.asarray(metrics["per_row"]), np.asarray(metrics["targets"])
        decode = np.arange(len(rows)) < split.decode
        for branch, inside in (("decode", decode), ("denoise", ~decode)):
            if inside.any():
                self._count(branch, rows[inside].sum(), targets[inside].sum())
        first = jax.process_index() * len(batch.tasks)  # tasks are known of one's own rows
        for i, task in enumerate(batch.tasks, first):
            self._count(f"{'decode' if decode[i] else 'denoise'}/{task}", rows[i], targets[i])

    def _why(self, step: int, batch: TrainBatch, split: Split, loss: float, norm: float) -> str:
        usual = self.progress.usual.get(_kind(split), [0.0])[0]
        what = f"the loss is {loss:.4g}, the usual one {usual:.4g}"
        if not math.isfinite(loss):
            what = "the loss is not finite"
        elif not math.isfinite(norm):
            what = f"the gradient is not finite (loss {loss:.4g})"
        shown = ", ".join(map(str, batch.rows[:SHOWN_ROWS]))
        more = ", ..." if len(batch.tasks) > SHOWN_ROWS else ""
        return (
            f"stopped at step {step}: {what}; its batch of {len(batch.tasks)} rows "
            f"({shown}{more}) has length {batch.batch.ids.shape[1]}. The state before it is saved: "
            "resume with a lower learning rate, or leave those rows out"
        )

    def _count(self, name: str, total: float, weight: float) -> None:
        self._sums[name][0] += float(total)
        self._sums[name][1] += float(weight)

    def write(self, step: int) -> None:
        """One line for the steps since the last, after `step` steps."""
        if not self._steps:
            return
        seconds = max(time.time() - self._began, 1e-9)
        means = {name: a / max(b, 1e-9) for name, (a, b) in sorted(self._sums.items())}
        line: Numbers = {
            "step": step,
            "tokens": self.progress.tokens,
            "tokens_per_s": round(self._new / seconds),
            "ms_per_step": round(1000 * seconds / self._steps, 1),
            **({"tflop_per_s": round(self._work / seconds / 1e12, 4)} if self._work else {}),
            **({"utilisation": round(self._work / seconds / self.peak, 4)} if self._shares else {}),
            **{name: round(value, 4) for name, value in means.items()},
        }
        left = (self.config.steps - step) * seconds / self._steps
        self.note(line, "train")
        self.say(_line(self.config.steps, line, left))
        self._clear()

    @property
    def _shares(self) -> bool:
        return bool(self._work and self.peak)

    def note(self, line: Numbers, group: str) -> None:
        """Numbers of one step into the log and TensorBoard."""
        if not first_process():
            return
        with self._file.open("a", encoding="utf-8") as out:
            print(json.dumps(line), file=out)
        if self._events is not None:
            for name, value in line.items():
                if name != "step":
                    self._events.add_scalar(f"{group}/{name}", value, int(line["step"]))
            self._events.flush()

    def texts(self, step: int, texts: str) -> None:
        """Sample texts into TensorBoard."""
        if self._events is not None:
            self._events.add_text("samples", texts, step)

    def say(self, text: str) -> None:
        """A line on the terminal."""
        if not self.quiet:
            print(text, flush=True)


def _kind(split: Split) -> str:
    """Losses of the two branches are not alike."""
    if split.decode == split.rows:
        return "decode"
    return "both" if split.decode else "denoise"


def _line(steps: int, line: Numbers, left: float) -> str:
    losses = [f"{name} {line[name]:.4g}" for name in ("loss", "denoise", "decode") if name in line]
    parts = [f"step {line['step']}/{steps}", *losses, f"{line['tokens_per_s']:,} tokens/s"]
    if "utilisation" in line:
        parts.append(f"{100 * line['utilisation']:.0f} % of peak")
    return "  ".join([*parts, f"{duration(left)} left"])


def duration(seconds: float) -> str:
    """ "3 h 20 min", "4 min", "12 s"."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 60)} min" if seconds >= 60 else f"{int(seconds)} s"


def trim(file: Path, step: int) -> None:
    """Drop log lines of steps past `step`: a resumed run writes them again."""
    if not file.exists():
        return
    kept = []
    for text in file.read_text("utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # cut off when the run was killed
        if line.get("step", 0) <= step:
            kept.append(text + "\n")
    part = file.with_suffix(".part")
    part.write_text("".join(kept), "utf-8")
    os.replace(part, file)
