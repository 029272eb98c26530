"""`elf-eval generate`: a model's answers to the inputs of a task, one JSONL row per sample."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import editors
from app.evaluation.data import Item, items, items_of_file
from app.evaluation.output import Output, fingerprint
from app.evaluation.sampling import Sampled, run_many
from editors.request import EditRequest
from elf_engine.config import DecodeSpec, SampleSpec, from_dict
from elf_engine.decoding import DecoderEngine
from elf_engine.errors import ElfError

EDITOR_OF = {"unconditional": "draft", "prefix": "draft"}
# Settings of a run that are no fields of SampleSpec.
EXTRA = {"strength": 0.5, "length": 0, "quality": None}
DECODING = tuple(f.name for f in fields(DecodeSpec))
_CHUNK = 32


@dataclass(frozen=True)
class Job:
    """What to sample.

    settings  fields of SampleSpec over the model's own for the task, and "strength" (rewrite),
              "length" (tokens of a draft; -1: all the model has) and "quality"
    samples   answers to each input
    """

    task: str
    model: str = "starter"
    split: str = "validation"
    limit: int = 100
    seed: int = 0
    samples: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "torch"
    dtype: str = "float32"
    inputs: Path | None = None


def parse_setting(text: str) -> tuple[str, list[Any]]:
    """ "steps=8,16" -> ("steps", [8, 16]). Raises ElfError for an unknown name or a bad value."""
    name, equals, values = text.partition("=")
    if not equals or not values:
        raise ElfError(f"setting '{text}' is not NAME=VALUE, such as steps=8,16,32")
    return name.replace("-", "_"), [_value(v.strip()) for v in values.split(",")]


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the axes, checked before anything is loaded."""
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    for cell in cells:
        check_settings(cell)
    return cells


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ElfError for a setting that is unknown or out of range."""
    from_dict(DecodeSpec, decoding(settings), "settings")
    others = (*EXTRA, *DECODING)
    knobs = {name: value for name, value in settings.items() if name not in others}
    if "seed" in knobs:
        raise ElfError("setting 'seed' has an option of its own: --seed")
    from_dict(SampleSpec, knobs, "settings")
    strength = settings.get("strength", 0.5)
    if not isinstance(strength, int | float) or not 0 <= strength <= 1:
        raise ElfError(f"strength {strength} is outside 0 to 1")
    if not isinstance(settings.get("length", 0), int):
        raise ElfError(f"length {settings['length']} is no number of tokens")


def decoding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that are an autoregressive baseline's."""
    return {name: value for name, value in settings.items() if name in DECODING}


def tuned(engine: Any, job: Job) -> Any:
    """The engine with the job's decoding. Raises ElfError for a setting of the other kind of
    model."""
    if not isinstance(engine, DecoderEngine):
        for name in decoding(job.settings):
            raise ElfError(f"setting '{name}' is an autoregressive model's; {job.model} is ELF")
        return engine
    for name in job.settings:
        if name not in (*DECODING, "length"):
            known = ", ".join((*DECODING, "length"))
            raise ElfError(f"setting '{name}' is a flow's; {job.model} is autoregressive: {known}")
    return engine.with_decoding(from_dict(DecodeSpec, decoding(job.settings), "settings"))


def settings_of(engine: Any, job: Job, spec: SampleSpec) -> dict[str, Any]:
    """What a row says of its settings."""
    shown = {k: v for k, v in job.settings.items() if k in EXTRA}
    if isinstance(engine, DecoderEngine):
        return {**asdict(engine.decoding), "seed": spec.seed, **shown}
    return asdict(spec) | shown


def cell_name(settings: Mapping[str, Any]) -> str:
    """A file name for one cell of a grid."""
    return ",".join(f"{k}={v}" for k, v in settings.items()) or "defaults"


def inputs_of(job: Job, data: Path) -> tuple[Item, ...]:
    """The job's inputs: of its file, at most `limit`, or of the split."""
    if job.inputs is not None:
        return items_of_file(job.task, job.inputs)[: job.limit]
    return items(job.task, job.split, job.limit, job.seed, data)


def spec_of(engine: Any, job: Job) -> SampleSpec:
    """The settings that the model's own, `quality` and the job's give together."""
    editor = EDITOR_OF.get(job.task, job.task)
    names = {f.name for f in fields(SampleSpec)}
    knobs = {name: value for name, value in job.settings.items() if name in names}
    return editors.settings(engine, editor, job.settings.get("quality"), **knobs)


def request_of(engine: Any, job: Job, item: Item, sample: int, spec: SampleSpec) -> EditRequest:
    """The request of one sample. Inputs differ in seed; without input the sample number does it."""
    editor = EDITOR_OF.get(job.task, job.task)
    free = job.task == "unconditional"
    seed = job.seed if free else _seed(job.seed, item.id)
    length = int(job.settings.get("length", 0))
    if length < 0:
        length = _all_of(engine, item)
    more: dict[str, Any] = {"spans": item.spans} if item.spans else {}
    if editor == "rewrite":
        more["strength"] = float(job.settings.get("strength", 0.5))
    if editor == "draft":
        more["length"] = length
    first = int(item.id) if free and item.id.isdecimal() else sample
    return EditRequest(editor, item.text, first=first, settings=replace(spec, seed=seed), **more)


def _seed(seed: int, name: str) -> int:
    return int(hashlib.sha256(f"{seed} {name}".encode()).hexdigest()[:8], 16)


def _all_of(engine: Any, item: Item) -> int:
    from editors.plan import room

    used = len(engine.tokenizer.encode(item.text)) if item.text else 0
    return max(1, room(engine, "draft") - used)


def generate(
    job: Job,
    engine: Any,
    data: Path,
    out: Path,
    shard: tuple[int, int] = (0, 1),
    told: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write the samples of `job` that `out` lacks, and return how many it wrote.

    shard  (k, n): only every n-th sample, from the k-th
    told   called with samples done and in all, after every chunk
    """
    engine = tuned(engine, job)
    spec = spec_of(engine, job)
    facts = asdict(job) | {
        "inputs": _digest(job.inputs),
        "model": engine.model_hash,
        "settings": settings_of(engine, job, spec),
    }
    facts.pop("limit")  # more of the same is a continuation
    wanted = [
        (item.id if job.samples == 1 else f"{item.id}#{sample}", item, sample)
        for item in inputs_of(job, data)
        for sample in range(job.samples)
    ][shard[0] :: shard[1]]
    with Output(out, fingerprint(facts)) as output:
        todo = [one for one in wanted if one[0] not in output.done]
        for start in range(0, len(todo), _CHUNK):
            chunk = todo[start : start + _CHUNK]
            requests = [request_of(engine, job, item, sample, spec) for _, item, sample in chunk]
            found = run_many(engine, requests)
            output.append(_rows(engine, job, chunk, requests, found))
            told(len(wanted) - len(todo) + start + len(chunk), len(wanted))
        return len(todo)


def _digest(path: Path | None) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path is not None else ""


def _rows(
    engine: Any,
    job: Job,
    chunk: Sequence[tuple[str, Item, int]],
    requests: Sequence[EditRequest],
    found: Sequence[Sampled],
) -> Iterator[dict[str, Any]]:
    for (name, item, _), request, made in zip(chunk, requests, found, strict=True):
        assert request.settings is not None
        row: dict[str, Any] = {
            "id": name,
            "generated": made.text,
            "task": job.task,
            "input": item.text,
            "seed": request.settings.seed,
            "sample": request.first,
            "settings": settings_of(engine, job, request.settings),
            "seconds": round(made.seconds, 4),
            "model": engine.config.name,
            "model_hash": engine.model_hash[:16],
        }
        row |= {"reference": item.reference} if item.reference else {}
        row |= {"group": item.group} if item.group else {}
        row |= {"spans": item.spans, "written": made.written} if item.spans else {}
        row |= {"error": made.error} if made.error else {}
        yield row
