"""Everything that fixes a training run: frozen, typed, read strictly from YAML."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from elf_engine.config import (
    EncoderSpec,
    FlowSpec,
    LayoutSpec,
    NetworkSpec,
    SampleSpec,
    TokenizerSpec,
)
from elf_engine.errors import ElfError
from elf_engine.tokens import CONTROL, SEP_ID, Tokenizer, load_tokenizer
from training.data import DataConfig


@dataclass(frozen=True)
class OptimizerConfig:
    """Muon for kernels, Adam for the rest (ELF.md, "Training"), or AdamW for all.
    Where gradients are accumulated, `warmup` and `decay_from` count updates.

    kind          "muon", or "adamw" with `adam_learning_rate` for every parameter
    ns_steps      Newton-Schulz iterations of Muon
    clip          largest global norm of the gradient; 0 clips nothing
    warmup        steps of linear warm-up
    warmup_start  the first step's rate: "zero", as published, or "part": rate / warmup
    decay_from    step from which the rate falls to `final` of itself at the last step;
                  -1 keeps it constant, as published
    decay         shape of that fall
    ema, ema_ramp decay of the weights' average; the ramp lowers it in the first steps, so that
                  the start is forgotten (published: none)
    accumulate    steps whose gradients, each clipped, make one update together
    weight_decay  of AdamW, or of Muon and its Adam, times the rate
    adam_b2       decay of Adam's second moment (published AdamW: 0.95)
    adam_for      kernels that Adam updates too, by their name's end (published: none)
    untaken       parameters of a branch that a step did not take: they "move" on by momentum, as
                  published, or Muon and its Adam "keep" them, which saves the work
    """

    kind: Literal["muon", "adamw"] = "muon"

    learning_rate: float = 0.002
    adam_learning_rate: float = 0.002
    ns_steps: int = 5
    clip: float = 1.0
    warmup: int = 100
    warmup_start: Literal["part", "zero"] = "part"
    decay_from: int = -1
    decay: Literal["linear", "cosine"] = "linear"
    final: float = 0.1
    ema: float = 0.9999
    ema_ramp: bool = True
    accumulate: int = 1
    weight_decay: float = 0.0
    adam_b2: float = 0.999
    adam_for: tuple[str, ...] = ("unembed_kernel", "shared/embedding")
    untaken: Literal["move", "keep"] = "move"


@dataclass(frozen=True)
class ObjectiveConfig:
    """The losses (ELF.md, "Training").

    branch           what chooses decode or denoise: "example" splits every batch by rows (the
                     paper), "step" draws one branch for the whole batch (published code)
    loss_mask        "pad" leaves padding out of the loss, "eos" counts it as text: EOS tokens
    padding          "masked" or "attended": whether the network's attention leaves padding out;
                     the layout's, so that training equals use (published: attended)
    decode_condition the condition in decode inputs: "clean", as at inference, or "noised" like
                     all other positions (published)
    decode_share     first rows of each batch that train the decode head, or the share of steps
    self_cond_share  fraction of the denoise rows that are self-conditioned
    w_min, w_max     range of the guidance scale, log-uniform in 1 + w
    label_drop       probability that a row's known positions are zeroed and hidden
    decode_noise     noise scale of decode inputs
    lambda_mean, lambda_std   logit-normal share of the latent in decode inputs
    """

    branch: Literal["example", "step"] = "example"
    loss_mask: Literal["pad", "eos"] = "pad"
    padding: Literal["masked", "attended"] = "masked"
    decode_condition: Literal["clean", "noised"] = "clean"
    decode_share: float = 0.2
    self_cond_share: float = 0.5
    w_min: float = 0.5
    w_max: float = 5.0
    label_drop: float = 0.1
    decode_noise: float = 1.0
    lambda_mean: float = 0.8
    lambda_std: float = 0.8


@dataclass(frozen=True)
class EncoderTraining:
    """Masked-token pre-training of the encoder. `mask` is the fraction of tokens masked,
    `unmasked_weight` the loss weight of visible tokens, which keeps their identity in the latent.
    `counted_examples` is how many examples are counted for the start of the token table; 0 starts
    it at random.
    """

    steps: int = 2000
    batch_tokens: int = 4096
    counted_examples: int = 400_000
    mask: float = 0.3
    unmasked_weight: float = 0.1
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(ema=0.995))


@dataclass(frozen=True)
class MeshConfig:
    """Devices of a run (JAX mesh axes). Rows of a batch are split over both axes; weights,
    averages and optimizer state are split over `fsdp` and repeated over `data`.

    data    0 takes every device that `fsdp` leaves
    """

    data: int = 0
    fsdp: int = 1

    def __post_init__(self) -> None:
        if self.data < 0 or self.fsdp < 1:
            raise ElfError(
                f"mesh: data {self.data}, fsdp {self.fsdp}; data is 0 (all devices) or more, "
                "fsdp 1 or more"
            )


@dataclass(frozen=True)
class WatchConfig:
    """What a run reports on itself, and when it stops itself.

    validate_every, validate_batches   steps between validation losses (0: never), and of how many
                                       batches
    sample_every, samples              steps between sample texts (0: never), and how many
    sample_steps                       network steps of a sample
    tensorboard                        whether events are written beside the JSON lines
    stop_factor                        a loss this many times the usual one stops the run
    """

    validate_every: int = 0
    validate_batches: int = 8
    sample_every: int = 0
    samples: int = 8
    sample_steps: int = 16
    tensorboard: bool = True
    stop_factor: float = 10.0


@dataclass(frozen=True)
class TrainConfig:
    """One run. Paths are relative to the working directory.

    data, tokenizer   corpus directory and tokenizer (a file; of a Hugging Face one, the directory
                      or the Hub's name); `data` "" uses the built-in lines
    tokenizer_spec    its kind, name in the exported model and padding
    embeddings        what the latents are (the paper's ablation): "scratch", a text encoder
                      pre-trained by us first; "pretrained", the encoder at `encoder_from`;
                      "learned", a token table trained with the network; "random", a fixed table.
                      Ours beside them: "counts", a fixed table from co-occurrence counts
    encoder_from      a T5 encoder: directory, file or Hugging Face name, or a model directory
    unembedding       how the decode head's matrix starts: at "random", or as the "encoder"'s token
                      table, which then needs network.bottleneck = encoder.d_model
    backend           what computes a step: "jax", or "torch", for one CPU; checkpoints serve both
    runs              where the run directory `runs/name` goes
    steps             optimizer steps in all
    compute           type of the matrix products; weights, sums and losses stay float32
    remat             recompute activations in the backward pass: less memory, about a third more
                      time
    save_minutes, save_steps, keep   time and steps (0: no matter) between checkpoints; how many
                      are kept
    log_every         steps between log lines
    """

    name: str
    data: str = "../shared/data"
    tokenizer: str = "assets/starter/tokenizer.model"
    tokenizer_spec: TokenizerSpec = field(default_factory=TokenizerSpec)
    embeddings: Literal["scratch", "pretrained", "learned", "random", "counts"] = "scratch"
    encoder_from: str = ""
    unembedding: Literal["random", "encoder"] = "random"
    backend: Literal["jax", "torch"] = "jax"
    runs: str = "runs"
    seed: int = 0
    steps: int = 1000
    compute: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    mesh: MeshConfig = field(default_factory=MeshConfig)
    save_minutes: float = 4.0
    save_steps: int = 0
    keep: int = 2
    log_every: int = 20
    watch: WatchConfig = field(default_factory=WatchConfig)
    network: NetworkSpec = field(default_factory=NetworkSpec)
    encoder: EncoderSpec = field(default_factory=EncoderSpec)
    flow: FlowSpec = field(default_factory=FlowSpec)
    layout: LayoutSpec = field(
        default_factory=lambda: LayoutSpec(
            tasks={name.strip("<>"): i for i, name in enumerate(CONTROL) if 5 <= i <= 9},
            sep_id=SEP_ID,
        )
    )
    batches: DataConfig = field(default_factory=DataConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    encoder_training: EncoderTraining = field(default_factory=EncoderTraining)
    defaults: dict[str, SampleSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.encoder.d_model != self.network.embedding_dim:
            raise ElfError(
                f"encoder.d_model {self.encoder.d_model} must equal network.embedding_dim "
                f"{self.network.embedding_dim}"
            )
        if self.objective.padding != self.layout.padding:
            raise ElfError(
                f"objective.padding '{self.objective.padding}' must equal layout.padding "
                f"'{self.layout.padding}'"
            )
        if (self.embeddings == "pretrained") != bool(self.encoder_from):
            raise ElfError(
                f"embeddings '{self.embeddings}' with encoder_from '{self.encoder_from}'; "
                "pretrained needs an encoder, the other kinds take none"
            )
        if self.embeddings == "counts" and not self.encoder_training.counted_examples:
            raise ElfError(
                "embeddings 'counts' with encoder_training.counted_examples 0: nothing to count; "
                "set it to 1 or more"
            )
        if self.unembedding == "encoder" and self.network.bottleneck != self.encoder.d_model:
            raise ElfError(
                f"unembedding 'encoder': network.bottleneck {self.network.bottleneck} must equal "
                f"encoder.d_model {self.encoder.d_model}"
            )
        if self.keep < 1 or self.log_every < 1 or self.steps < 1:
            raise ElfError("steps, keep and log_every must be at least 1")
        lengths = self.batches.lengths or self.layout.lengths
        if len(self.batches.length_weights) != len(lengths):
            raise ElfError(
                f"batches.length_weights has {len(self.batches.length_weights)} numbers for "
                f"{len(lengths)} lengths; give one for each"
            )
        if list(lengths) != sorted(set(lengths)) or lengths[-1] > self.network.max_length:
            raise ElfError(
                f"batches.lengths {list(lengths)} must ascend to at most network.max_length "
                f"{self.network.max_length}"
            )

    @property
    def directory(self) -> Path:
        """Where the run keeps its checkpoints and log."""
        return Path(self.runs) / self.name


def tokenizer_path(config: TrainConfig) -> Path:
    """Where the tokenizer's file, or directory, is; a Hugging Face one is fetched if need be."""
    if config.tokenizer_spec.kind != "huggingface":
        return Path(config.tokenizer)
    from elf_engine.published.hub import tokenizer_directory

    return tokenizer_directory(config.tokenizer)


def open_tokenizer(config: TrainConfig) -> Tokenizer:
    """The run's tokenizer. Raises ElfError when its files are missing or of another kind."""
    path = tokenizer_path(config)
    if path.is_dir():
        return load_tokenizer(replace(config.tokenizer_spec, file="."), path)
    return load_tokenizer(replace(config.tokenizer_spec, file=path.name), path.parent)


def load(name: str) -> TrainConfig:
    """The preset or YAML file `name`; see `training.settings.load`."""
    from training import settings

    return settings.load(name)
