"""Frozen, typed configuration; unknown keys are errors (`from_dict`)."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, TypeVar

from elf_engine.errors import ElfError

T = TypeVar("T")


def _in_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ElfError(f"{name} {value!r} is no number; give one from {low} to {high}")
    if not (math.isfinite(value) and low <= value <= high):
        raise ElfError(f"{name} {value} is outside {low} to {high}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ElfError(
            f"{name} '{value}' is unknown; choose one of {', '.join(filter(None, allowed))}"
        )


def _check_heads(hidden: int, heads: int) -> None:
    if hidden % heads or (hidden // heads) % 2:
        raise ElfError(
            f"network: hidden {hidden} over {heads} heads gives no even head width; "
            "choose hidden as an even multiple of heads"
        )


@dataclass(frozen=True)
class NetworkSpec:
    """Sizes of the denoising network (ELF.md, "Network"). Defaults are the published size B."""

    embedding_dim: int = 512
    hidden: int = 768
    depth: int = 12
    heads: int = 12
    bottleneck: int = 128
    vocab: int = 32128
    max_length: int = 1024
    time_tokens: int = 4
    guidance_tokens: int = 4
    mode_tokens: int = 4
    self_conditioning: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        sizes = ("embedding_dim", "hidden", "depth", "heads", "bottleneck", "vocab", "max_length")
        for name in (*sizes, "time_tokens", "mode_tokens"):
            _in_range(f"network.{name}", getattr(self, name), 1, 2**31 - 1)
        _in_range("network.guidance_tokens", self.guidance_tokens, 0, 2**31 - 1)
        _check_heads(self.hidden, self.heads)

    @property
    def prefix(self) -> int:
        """Number of tokens in front of the text: time, guidance, mode."""
        return self.time_tokens + self.guidance_tokens + self.mode_tokens

    @property
    def mlp_hidden(self) -> int:
        """SwiGLU hidden width, `int(int(4 H) * 2 / 3)`."""
        return int(int(4 * self.hidden) * 2 / 3)


@dataclass(frozen=True)
class DecoderSpec:
    """Sizes of the autoregressive baseline: blocks of the ELF network with causal attention between
    one token table used twice. `max_length` counts all tokens of a row.
    """

    vocab: int = 8192
    hidden: int = 256
    depth: int = 5
    heads: int = 4
    max_length: int = 128

    def __post_init__(self) -> None:
        for name in ("vocab", "hidden", "depth", "heads", "max_length"):
            _in_range(f"network.{name}", getattr(self, name), 1, 2**31 - 1)
        _check_heads(self.hidden, self.heads)

    @property
    def mlp_hidden(self) -> int:
        """SwiGLU hidden width, as in `NetworkSpec`."""
        return int(int(4 * self.hidden) * 2 / 3)


PUBLISHED_SIZES: dict[str, NetworkSpec] = {
    "B": NetworkSpec(),
    "M": NetworkSpec(depth=24, hidden=1056, heads=16),
    "L": NetworkSpec(depth=32, hidden=1280, heads=16),
}


@dataclass(frozen=True)
class EncoderSpec:
    """Sizes of the frozen text encoder and the normalisation of its output.

    `kind` "t5" is built in on both backends; any other kind must be registered with
    `elf_engine.encoders.register`. Defaults are T5-small.
    """

    kind: str = "t5"
    vocab: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    layers: int = 6
    heads: int = 8
    gated: bool = False
    latent_mean: float = 0.0
    latent_std: float = 0.2

    def __post_init__(self) -> None:
        for name in ("vocab", "d_model", "d_kv", "d_ff", "layers", "heads"):
            _in_range(f"encoder.{name}", getattr(self, name), 1, 2**31 - 1)
        if not 0 < self.latent_std < math.inf:
            raise ElfError(f"encoder.latent_std {self.latent_std} is not a positive number")


@dataclass(frozen=True)
class FlowSpec:
    """Constants of the flow (ELF.md, "Flow" and "Training")."""

    noise_scale: float = 2.0
    t_eps: float = 0.05
    p_mean: float = -1.5
    p_std: float = 0.8

    def __post_init__(self) -> None:
        for name in ("noise_scale", "t_eps", "p_std"):
            if not 0 < getattr(self, name) < math.inf:
                raise ElfError(f"flow.{name} {getattr(self, name)} is not a positive number")


@dataclass(frozen=True)
class TokenizerSpec:
    """Which tokenizer turns text into ids. `kind` "sentencepiece" or "huggingface".

    `file` is relative to the model directory. `pad_id` fills what no one reads, `eos_id` ends
    a text and fills a free region that ended early.
    """

    kind: str = "sentencepiece"
    file: str = "tokenizer.model"
    pad_id: int = 0
    eos_id: int = 1


@dataclass(frozen=True)
class LayoutSpec:
    """How a request is laid out as one row of tokens; fixed by how the model was trained.

    padding      "masked": padding never reaches attention, rows use `lengths` buckets.
                 "attended": no mask, rows always have `max_length` (published models).
    hold         "clean": known positions hold their clean latents at every step (models trained
                 with conditions). "renoise": known positions follow the flow to the current t.
    lengths      padded row lengths, ascending; a row takes the first that fits.
    tasks        task name -> id of its leading control token; -1 means no leading token.
    sep_id       token between source and target; -1 for none.
    positions    "row": rotary positions count through the row, as published. "source": behind the
                 separator they count from 1 again, so that target and source run side by side.
    max_source   most condition tokens of translate/summarise; 0 for no limit but the row.
    """

    padding: Literal["masked", "attended"] = "masked"
    hold: Literal["clean", "renoise"] = "clean"
    lengths: tuple[int, ...] = (32, 64, 128)
    tasks: dict[str, int] = field(default_factory=dict)
    sep_id: int = -1
    positions: Literal["row", "source"] = "row"
    max_source: int = 0


@dataclass(frozen=True)
class SampleSpec:
    """Everything that, with a model and a request, fixes the text.

    steps               number of network steps, 1 to 1000
    sampler             "ode" (Euler) or "sde"
    gamma               noise put back per unit time by the SDE, >= 0
    guidance            self-conditioning guidance w, 0 to 100
    condition_guidance  condition guidance c, 0 to 100; 1 runs a single pass
    grid                "uniform", "logit-normal" (seeded draws, as published) or
                        "quantile" (the same distribution's fixed quantiles)
    seed                0 to 2**63 - 1
    resample            times each inner step goes back and is run again, 0 to 20 (RePaint's jumps,
                        arXiv 2201.09865): what is written agrees better with known text, for models
                        trained without conditions
    """

    steps: int = 32
    sampler: Literal["ode", "sde"] = "sde"
    gamma: float = 1.0
    guidance: float = 1.0
    condition_guidance: float = 1.0
    grid: Literal["uniform", "logit-normal", "quantile"] = "uniform"
    seed: int = 0
    resample: int = 0

    def __post_init__(self) -> None:
        _in_range("steps", self.steps, 1, 1000)
        _in_range("resample", self.resample, 0, 20)
        _in_range("gamma", self.gamma, 0.0, 1000.0)
        _in_range("guidance", self.guidance, 0.0, 100.0)
        _in_range("condition-guidance", self.condition_guidance, 0.0, 100.0)
        _in_range("seed", self.seed, 0, 2**63 - 1)
        _one_of("sampler", self.sampler, ("ode", "sde"))
        _one_of("grid", self.grid, ("uniform", "logit-normal", "quantile"))


@dataclass(frozen=True)
class DecodeSpec:
    """How an autoregressive baseline chooses tokens: the likeliest at temperature 0, else drawn
    among the likeliest that together have the share `top_p`."""

    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        _in_range("temperature", self.temperature, 0.0, 10.0)
        _in_range("top_p", self.top_p, 1e-6, 1.0)


@dataclass(frozen=True)
class ModelConfig:
    """`config.json` of a model directory."""

    name: str
    network: NetworkSpec = NetworkSpec()
    encoder: EncoderSpec = EncoderSpec()
    flow: FlowSpec = FlowSpec()
    tokenizer: TokenizerSpec = TokenizerSpec()
    layout: LayoutSpec = LayoutSpec()
    defaults: dict[str, SampleSpec] = field(default_factory=dict)
    format: int = 1


@dataclass(frozen=True)
class DecoderConfig:
    """`config.json` of an autoregressive baseline's directory, told apart by `kind`.

    layout   as of an ELF model; no tasks means text alone, each begun and ended by EOS
    """

    name: str
    kind: Literal["ar"] = "ar"
    network: DecoderSpec = DecoderSpec()
    tokenizer: TokenizerSpec = TokenizerSpec()
    layout: LayoutSpec = LayoutSpec()
    format: int = 1

    @property
    def defaults(self) -> dict[str, SampleSpec]:
        """None: a baseline has no settings of a flow."""
        return {}


def from_dict(cls: type[T], data: Any, where: str = "config") -> T:
    """Build dataclass `cls` from plain JSON/YAML values, strictly.

    Raises ElfError for an unknown key (naming the nearest known one), a missing key or a value
    of the wrong type; `where` names the place in the message.
    """
    if not isinstance(data, dict):
        raise ElfError(f"{where}: expected a mapping, found {type(data).__name__}")
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(known)}"
            raise ElfError(f"{where}: unknown key '{key}'{hint}")
    for name, f in known.items():
        no_default = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if no_default and name not in data:
            raise ElfError(f"{where}: key '{name}' is missing")
    return cls(**{k: _convert(hints[k], v, f"{where}.{k}") for k, v in data.items()})


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value, where)
    if origin is Literal:
        _one_of(where, value, args)
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        inner = [a for a in args if a is not type(None)]
        return _convert(inner[0], value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ElfError(f"{where}: expected a list, found {value!r}")
        if args[-1] is not Ellipsis and len(value) != len(args):
            raise ElfError(f"{where}: expected {len(args)} values, found {value!r}")
        return tuple(_convert(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ElfError(f"{where}: expected a mapping, found {value!r}")
        return {str(k): _convert(args[1], item, f"{where}.{k}") for k, item in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wrong_bool = isinstance(value, bool) and hint is not bool
    if hint in (int, float, str, bool) and (wrong_bool or not isinstance(value, hint)):
        raise ElfError(f"{where}: expected {hint.__name__}, found {value!r}")
    return value


def to_dict(spec: Any) -> dict[str, Any]:
    """The plain JSON form of a spec; `from_dict(type(spec), to_dict(spec)) == spec`."""
    return dataclasses.asdict(spec)
