"""Model directories: `config.json`, `model.safetensors`, `encoder.safetensors`, a tokenizer and
`MODEL_CARD.md`. Everything is checked before it is believed."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from elf_engine import tensor_file
from elf_engine.config import (
    DecoderSpec,
    EncoderSpec,
    ModelConfig,
    NetworkSpec,
    from_dict,
    to_dict,
)
from elf_engine.errors import ElfError
from elf_engine.types import Weights

CONFIG, NETWORK, ENCODER = "config.json", "model.safetensors", "encoder.safetensors"
CARD = "MODEL_CARD.md"
BUNDLED = Path(__file__).resolve().parent.parent / "assets"
TIME_FEATURES = 256
POSITION_BUCKETS = 32

Shape = tuple[int, ...]
Spec = NetworkSpec | EncoderSpec | DecoderSpec
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class ModelFiles:
    """One loaded model. Weights are float32 in the engine's naming; `encoder` is empty when the
    directory has none (see `missing_encoder`). `hash` is the hex sha256 over the configuration and
    both weight files."""

    config: ModelConfig
    network: Weights
    encoder: Weights
    path: Path
    hash: str


def home() -> Path:
    """Where models are installed: `$ELF_HOME`, by default `~/.cache/elf-studio`."""
    return Path(os.environ.get("ELF_HOME") or Path.home() / ".cache" / "elf-studio")


def missing_encoder(name: str) -> ElfError:
    """The error to raise when text must be encoded by a model without encoder weights."""
    return ElfError(
        f"model '{name}' has no encoder, so it can draft freely but not read text; "
        "convert it again with: elf models convert SRC DST --encoder FILE"
    )


def expected_shapes(spec: Spec) -> dict[str, Shape]:
    """Name and shape of every weight that `spec` implies; for an encoder, `kind` "t5" only."""
    if isinstance(spec, EncoderSpec) and spec.kind != "t5":
        raise ElfError(f"encoder kind '{spec.kind}' is not built in; its weights are unknown here")
    return dict(_shapes(spec))


def check_shapes(
    found: Mapping[str, Shape],
    spec: Spec,
    file: str,
    source: str = CONFIG,
) -> None:
    """Raise ElfError naming the first weight that is missing, of the wrong shape or unknown."""
    seen = set()
    for name, shape in _shapes(spec):
        if name not in found:
            raise ElfError(f"{file}: {name} is missing, {source} implies {shape}")
        if tuple(found[name]) != shape:
            raise ElfError(f"{file}: {name} is {tuple(found[name])}, {source} implies {shape}")
        seen.add(name)
    for name in sorted(found):
        if name not in seen:
            raise ElfError(f"{file}: {name} is not a weight that {source} implies")


def load(path: str | Path) -> ModelFiles:
    """Read a model directory. Raises ElfError naming the first thing that is wrong with it."""
    directory = Path(path)
    config = load_config(directory)
    network = load_weights(directory / NETWORK, config.network)
    encoder: Weights = {}
    if (directory / ENCODER).exists():
        encoder = load_weights(directory / ENCODER, config.encoder)
    return ModelFiles(config, network, encoder, directory, model_hash(directory))


def load_config(path: str | Path) -> ModelConfig:
    """The checked `config.json` of a model directory."""
    data = read_config(path)
    if kind_of(data) != "elf":
        raise ElfError(f"{path}: is a baseline of kind '{data['kind']}'; use it with elf-eval")
    config = from_dict(ModelConfig, data, CONFIG)
    _check_config(config)
    return config


def read_config(path: str | Path) -> Any:
    """What a model directory's `config.json` holds, not checked further."""
    file = Path(path) / CONFIG
    if not Path(path).is_dir():
        raise ElfError(f"{path}: no such model directory")
    try:
        return json.loads(file.read_text("utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise ElfError(f"{path}: not a model directory, it has no readable {CONFIG}") from error
    except (ValueError, RecursionError) as error:
        raise ElfError(f"{file}: not valid JSON ({str(error) or 'nested too deep'})") from error


def kind_of(data: Any) -> str:
    """ "elf", or the kind of a baseline ("ar"), of what a `config.json` holds."""
    return str(data["kind"]) if isinstance(data, dict) and "kind" in data else "elf"


def save(
    path: str | Path,
    config: ModelConfig,
    network: Mapping[str, Any],
    encoder: Mapping[str, Any],
    tokenizer_file: str | Path | None = None,
    card: str = "",
    dtype: str = "float32",
) -> Path:
    """Write a model directory, replacing an earlier model at `path` only once complete.

    `tokenizer_file` is the tokenizer's file, or the directory of a Hugging Face tokenizer; it is
    stored as `config.tokenizer.file`; None stores none (kind "bytes" needs none). `dtype` is the
    stored type of all weights. An empty `encoder` writes none. Raises ElfError when the weights do
    not fit `config`, or the disk refuses.
    """
    target = Path(path)
    _check_config(config)
    check_shapes({k: v.shape for k, v in network.items()}, config.network, NETWORK)
    if encoder and config.encoder.kind == "t5":
        check_shapes({k: v.shape for k, v in encoder.items()}, config.encoder, ENCODER)

    def fill(new: Path) -> None:
        tensor_file.write_file(new / NETWORK, network, dtype)
        if encoder:
            tensor_file.write_file(new / ENCODER, encoder, dtype)
        if tokenizer_file is not None:
            copy_tokenizer(Path(tokenizer_file), new / config.tokenizer.file)
        (new / CARD).write_text(card or f"# {config.name}\n", "utf-8")
        (new / CONFIG).write_text(json.dumps(to_dict(config), indent=2) + "\n", "utf-8")

    return replace_directory(target, fill)


def replace_directory(target: Path, fill: Callable[[Path], None]) -> Path:
    """Make the model directory `target` out of an empty one that `fill` fills, replacing an
    earlier model only once complete. Raises ElfError when the disk refuses."""
    if target.exists() and not (target / CONFIG).exists() and any(_listing(target)):
        raise ElfError(f"{target} exists and is not a model directory; choose another place")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            new = Path(scratch) / "new"
            new.mkdir()
            fill(new)
            if target.exists():
                target.rename(Path(scratch) / "old")
            new.rename(target)
    except OSError as error:
        raise ElfError(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def model_hash(path: str | Path) -> str:
    """Hex sha256 over `config.json` and the weight files; the first 12 digits are shown."""
    total = hashlib.sha256()
    for name in (CONFIG, NETWORK, ENCODER):
        file = Path(path) / name
        if file.exists():
            with file.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            total.update(f"{name} {digest}\n".encode())
    return total.hexdigest()


def bundled() -> dict[str, Path]:
    """Models that come with the project, by name."""
    return _models_in(BUNDLED)


def installed() -> dict[str, Path]:
    """Models under `home()`, by name."""
    return _models_in(home() / "models")


def find(name_or_path: str | Path) -> Path:
    """The directory of a bundled or installed model, or of a path. Raises ElfError naming what
    there is when there is no such model."""
    text = str(name_or_path)
    if _NAME.fullmatch(text):
        known = installed() | bundled()
        if text in known:
            return known[text]
        if not Path(text).is_dir():
            near = difflib.get_close_matches(text, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            have = ", ".join(known) or "none"
            raise ElfError(
                f"no model '{text}'{hint} (here: {have}); fetch one with: elf models pull NAME"
            )
    if not Path(text).is_dir():
        raise ElfError(f"no model directory at '{text}'; `elf models list` shows what there is")
    return Path(text)


def check_name(name: str) -> str:
    """`name` when it can name an installed model. Raises ElfError otherwise."""
    if not _NAME.fullmatch(name):
        raise ElfError(f"model name '{name}' may hold only letters, digits, '.', '_' and '-'")
    return name


def _shapes(spec: Spec) -> Iterator[tuple[str, Shape]]:
    if isinstance(spec, NetworkSpec):
        return _network_shapes(spec)
    return _t5_shapes(spec) if isinstance(spec, EncoderSpec) else _decoder_shapes(spec)


def _network_shapes(spec: NetworkSpec) -> Iterator[tuple[str, Shape]]:
    d, h = spec.embedding_dim, spec.hidden
    yield from _dense("text_proj/proj1", d, spec.bottleneck, bias=False)
    yield from _dense("text_proj/proj2", spec.bottleneck, h)
    if spec.self_conditioning:
        yield from _dense("self_cond_proj", 2 * d, d)
    yield "t_emb_tokens", (1, spec.time_tokens, h)
    yield from _embedder("t_embedder", h)
    if spec.guidance_tokens:
        yield "self_cond_cfg_tokens", (1, spec.guidance_tokens, h)
        yield from _embedder("self_cond_cfg_embedder", h)
    if spec.mode_tokens:
        yield "mode_tokens", (1, spec.mode_tokens, h)
    yield from _block_shapes(spec)
    yield "final_layer/norm_final/weight", (h,)
    yield from _dense("final_layer/linear", h, d)
    yield from (("proj_kernel", (h, d)), ("proj_bias", (d,)))
    yield from (("unembed_kernel", (d, spec.vocab)), ("unembed_bias", (spec.vocab,)))


def _block_shapes(spec: NetworkSpec | DecoderSpec) -> Iterator[tuple[str, Shape]]:
    h, m = spec.hidden, spec.mlp_hidden
    for i in range(spec.depth):
        block = f"blocks_{i}"
        yield f"{block}/norm1/weight", (h,)
        yield from _dense(f"{block}/attn/qkv", h, 3 * h)
        yield f"{block}/attn/q_norm/weight", (h // spec.heads,)
        yield f"{block}/attn/k_norm/weight", (h // spec.heads,)
        yield from _dense(f"{block}/attn/proj", h, h)
        yield f"{block}/norm2/weight", (h,)
        yield from _dense(f"{block}/mlp/w12", h, 2 * m)
        yield from _dense(f"{block}/mlp/w3", m, h)


def _decoder_shapes(spec: DecoderSpec) -> Iterator[tuple[str, Shape]]:
    yield "shared/embedding", (spec.vocab, spec.hidden)
    yield from _block_shapes(spec)
    yield "norm_final/weight", (spec.hidden,)


def _t5_shapes(spec: EncoderSpec) -> Iterator[tuple[str, Shape]]:
    d, inner = spec.d_model, spec.heads * spec.d_kv
    yield "shared/embedding", (spec.vocab, d)
    bias = "encoder/block_0/layer_0/SelfAttention/relative_attention_bias/rel_embedding"
    yield bias, (POSITION_BUCKETS, spec.heads)
    for i in range(spec.layers):
        attention, feed = f"encoder/block_{i}/layer_0", f"encoder/block_{i}/layer_1"
        yield f"{attention}/layer_norm/weight", (d,)
        for name in ("q", "k", "v"):
            yield from _dense(f"{attention}/SelfAttention/{name}", d, inner, bias=False)
        yield from _dense(f"{attention}/SelfAttention/o", inner, d, bias=False)
        yield f"{feed}/layer_norm/weight", (d,)
        for name in ("wi_0", "wi_1") if spec.gated else ("wi",):
            yield from _dense(f"{feed}/DenseReluDense/{name}", d, spec.d_ff, bias=False)
        yield from _dense(f"{feed}/DenseReluDense/wo", spec.d_ff, d, bias=False)
    yield "encoder/final_layer_norm/weight", (d,)


def _dense(name: str, into: int, out: int, bias: bool = True) -> Iterator[tuple[str, Shape]]:
    yield f"{name}/kernel", (into, out)
    if bias:
        yield f"{name}/bias", (out,)


def _embedder(name: str, hidden: int) -> Iterator[tuple[str, Shape]]:
    yield from _dense(f"{name}/mlp_0", TIME_FEATURES, hidden)
    yield from _dense(f"{name}/mlp_2", hidden, hidden)


def load_weights(file: Path, spec: Spec) -> Weights:
    """The weights of a file, float32, checked against `spec`."""
    opened = tensor_file.open_file(file)
    if not isinstance(spec, EncoderSpec) or spec.kind == "t5":
        check_shapes(opened.shapes, spec, file.name)
    return opened.load_all()


def _check_config(config: ModelConfig) -> None:
    if config.format != 1:
        raise ElfError(f"{CONFIG}: format {config.format} is newer than this program reads (1)")
    if config.encoder.d_model != config.network.embedding_dim:
        raise ElfError(
            f"{CONFIG}: encoder.d_model {config.encoder.d_model} is not "
            f"network.embedding_dim {config.network.embedding_dim}"
        )
    file = Path(config.tokenizer.file)
    if file.is_absolute() or ".." in file.parts:
        raise ElfError(f"{CONFIG}: tokenizer.file '{file}' lies outside the model directory")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def copy_tokenizer(source: Path, target: Path) -> None:
    """Copy a tokenizer's file, or directory, to its place in a model directory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    except OSError as error:
        raise ElfError(f"tokenizer {source}: cannot be copied ({error.strerror})") from error


def _listing(path: Path) -> Iterable[Path]:
    return path.iterdir() if path.is_dir() else [path]


def _models_in(directory: Path) -> dict[str, Path]:
    if not directory.is_dir():
        return {}
    found = (p for p in sorted(directory.iterdir()) if (p / CONFIG).is_file())
    return {p.name: p for p in found if not _is_baseline(p)}


def _is_baseline(directory: Path) -> bool:
    """A damaged model is still listed: using it says what is wrong."""
    try:
        return kind_of(read_config(directory)) != "elf"
    except ElfError:
        return False
