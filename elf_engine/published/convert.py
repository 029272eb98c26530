"""Turn a published checkpoint into a model directory."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from elf_engine import model_dir
from elf_engine.config import EncoderSpec, FlowSpec, ModelConfig, NetworkSpec
from elf_engine.errors import ElfError
from elf_engine.published.catalogue import (
    CATALOGUE,
    FAMILIES,
    T5_REPO,
    Family,
    Published,
    check_published,
    infer_network,
)
from elf_engine.published.flax_ckpt import read_msgpack, read_orbax
from elf_engine.published.t5_encoder import infer_spec, read_encoder
from elf_engine.published.torch_ckpt import read_torch
from elf_engine.types import Weights

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
)
_STEP = re.compile(r"checkpoint_(\d+)")


@dataclass(frozen=True)
class Options:
    """What a checkpoint does not say. None takes the catalogue's value for a known name, and the
    published unconditional one otherwise.

    name                          model name
    task                          key of `catalogue.FAMILIES`: "owt", "de-en" or "xsum"
    max_length, max_source        tokens
    encoder                       T5 weights, see `t5_encoder.read_encoder`
    tokenizer                     directory of a Hugging Face tokenizer
    latent_mean, latent_std       normalisation of the encoder's output
    noise_scale                   scale of the flow's noise
    dtype                         stored type
    """

    name: str | None = None
    task: str | None = None
    max_length: int | None = None
    max_source: int | None = None
    encoder: Path | None = None
    tokenizer: Path | None = None
    latent_mean: float = 0.0
    latent_std: float = 0.2
    noise_scale: float = 2.0
    dtype: str = "float32"


def convert(source: Path, target: Path, options: Options | None = None) -> Path:
    """Read the checkpoint at `source` and write the model directory `target`, which is returned.

    `source` is a checkpoint of any published format, or a directory of them, of which the latest
    is taken. Raises ElfError, naming the first difference, when it is damaged or not an ELF model.
    """
    options = options or Options()
    checkpoint = locate(source)
    published = _published(source, checkpoint, options)
    family = _family(published, options)
    network = read_checkpoint(checkpoint)
    spec = infer_network(network, family.max_length, checkpoint.name)
    if published is not None:
        check_published(spec, published, checkpoint.name)
    shapes = {name: weight.shape for name, weight in network.items()}
    model_dir.check_shapes(shapes, spec, checkpoint.name, "the rest of it")
    encoder = read_encoder(options.encoder) if options.encoder else {}
    config = ModelConfig(
        name=options.name or (published.name if published else target.name),
        network=spec,
        encoder=_encoder_spec(encoder, spec, options),
        flow=FlowSpec(noise_scale=options.noise_scale),
        tokenizer=family.tokenizer(),
        layout=family.layout(),
        defaults=published.defaults() if published else family.defaults(),
    )
    card = _card(config, checkpoint, published)
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = Path(scratch) if options.tokenizer else None
        if options.tokenizer:
            _copy_tokenizer(options.tokenizer, Path(scratch), spec.vocab)
        return model_dir.save(target, config, network, encoder, tokenizer, card, options.dtype)


def locate(source: Path) -> Path:
    """The checkpoint at `source`, or the latest `checkpoint_<step>` in it."""
    if not source.exists():
        hint = f"; fetch it with: elf models pull {source}" if str(source) in CATALOGUE else ""
        raise ElfError(f"no checkpoint at '{source}'{hint}")
    if source.is_file() or (source / "_METADATA").exists():
        return source
    if not source.is_dir():
        raise ElfError(f"'{source}' is neither a file nor a directory")
    steps = {int(m[1]): p for p in source.iterdir() if (m := _STEP.fullmatch(p.name))}
    if not steps:
        raise ElfError(
            f"'{source}' holds no checkpoint: expected a checkpoint_<step> file or directory, "
            "or an Orbax directory with _METADATA"
        )
    return steps[max(steps)]


def read_checkpoint(path: Path) -> Weights:
    """Network weights of a checkpoint, its format told by its content."""
    if path.is_dir():
        return read_orbax(path)
    with path.open("rb") as file:
        head = file.read(2)
    if head == b"PK":
        return read_torch(path)
    if head[:1] == b"\x80" and head[1:] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise ElfError(f"{path.name}: is a pickle, which could run code; it is not read")
    return read_msgpack(path)


def _published(source: Path, checkpoint: Path, options: Options) -> Published | None:
    """The catalogue entry by --name, or by the name of the source or a folder around it."""
    if options.name is not None:
        return CATALOGUE.get(model_dir.check_name(options.name))
    for name in (source.name, checkpoint.name, checkpoint.resolve().parent.name):
        if name in CATALOGUE:
            return CATALOGUE[name]
    return None


def _family(published: Published | None, options: Options) -> Family:
    if options.task is not None and options.task not in FAMILIES:
        raise ElfError(f"task '{options.task}' is unknown; choose one of {', '.join(FAMILIES)}")
    family = FAMILIES[options.task or "owt"]
    if published is not None and options.task is None:
        family = published.family
    if options.max_length is not None:
        family = replace(family, max_length=options.max_length)
    if options.max_source is not None:
        family = replace(family, max_source=options.max_source)
    if family.max_length < 1 or not 0 <= family.max_source < family.max_length:
        raise ElfError(
            f"max length {family.max_length} with max source {family.max_source} leaves no room "
            "for text"
        )
    return family


def _encoder_spec(encoder: Weights, network: NetworkSpec, options: Options) -> EncoderSpec:
    if not encoder:
        return EncoderSpec(
            d_model=network.embedding_dim,
            latent_mean=options.latent_mean,
            latent_std=options.latent_std,
        )
    where = str(options.encoder)
    spec = infer_spec(encoder, where, options.latent_mean, options.latent_std)
    if spec.d_model != network.embedding_dim:
        raise ElfError(
            f"{where}: the encoder is {spec.d_model} wide, the checkpoint's embeddings are "
            f"{network.embedding_dim}; give the encoder it was trained with"
        )
    return spec


def _copy_tokenizer(source: Path, target: Path, vocab: int) -> None:
    """Only the tokenizer's files: `source` may be a whole model. Raises ElfError when it can make
    ids the network does not know."""
    files = [source / name for name in TOKENIZER_FILES if (source / name).is_file()]
    if not any(file.name in ("tokenizer.json", "spiece.model") for file in files):
        raise ElfError(f"'{source}' holds no tokenizer.json or spiece.model")
    for file in files:
        shutil.copyfile(file, target / file.name)
    if (target / "tokenizer.json").exists():
        size = _tokenizer_size(target / "tokenizer.json", source)
        if size > vocab:
            raise ElfError(f"'{source}' has {size} tokens, the checkpoint knows {vocab}")


def _tokenizer_size(file: Path, source: Path) -> int:
    from tokenizers import Tokenizer

    try:
        return int(Tokenizer.from_file(str(file)).get_vocab_size())
    # The tokenizers package raises bare Exception.
    except Exception as error:
        raise ElfError(f"'{source}' holds a tokenizer.json that is none ({error})") from error


def _card(config: ModelConfig, checkpoint: Path, published: Published | None) -> str:
    network, origin = config.network, "a checkpoint given by path"
    if published is not None:
        origin = f"`{published.repo}` on the Hugging Face Hub (MIT licence)"
    tasks = ", ".join(config.layout.tasks)
    return (
        f"# {config.name}\n\n"
        f"Converted from {origin}, `{checkpoint.name}`, averaged weights where it has them.\n\n"
        f"- Tasks: {tasks}; rows of {network.max_length} tokens, padding attended.\n"
        f"- Network: depth {network.depth}, width {network.hidden}, {network.heads} heads, "
        f"embeddings {network.embedding_dim}, vocabulary {network.vocab}.\n"
        f"- Encoder: frozen T5 (`{T5_REPO}` for the published models), "
        f"mean {config.encoder.latent_mean}, deviation {config.encoder.latent_std}.\n"
        f"- Method: ELF: Embedded Language Flows, arXiv 2605.10938.\n"
    )
