"""Everything that fixes a training run: frozen, typed, read strictly from YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from elf_engine.config import (
    EncoderSpec,
    FlowSpec,
    LayoutSpec,
    NetworkSpec,
    SampleSpec,
    from_dict,
)
from elf_engine.errors import ElfError
from elf_engine.tokens import CONTROL, SEP_ID
from training.data import DataConfig

CONFIGS = Path(__file__).parent / "configs"


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
class TrainConfig:
    """One run. Paths are relative to the working directory.

    data, tokenizer   corpus directory and SentencePiece file; `data` "" uses the built-in lines
    runs              where the run directory `runs/name` goes
    steps             optimizer steps in all
    save_minutes      time between checkpoints
    log_every         steps between log lines
    """

    name: str
    data: str = "../shared/data"
    tokenizer: str = "assets/starter/tokenizer.model"
    runs: str = "runs"
    seed: int = 0
    steps: int = 1000
    save_minutes: float = 4.0
    log_every: int = 20
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
        if len(self.batches.length_weights) != len(self.layout.lengths):
            raise ElfError("batches.length_weights needs one number per layout.lengths")

    @property
    def directory(self) -> Path:
        """Where the run keeps its checkpoints and log."""
        return Path(self.runs) / self.name


def load(name: str) -> TrainConfig:
    """The config of this name in `training/configs`, or of a YAML file."""
    import yaml

    file = Path(name) if name.endswith((".yml", ".yaml", ".json")) else CONFIGS / f"{name}.yml"
    if not file.is_file():
        have = ", ".join(sorted(path.stem for path in CONFIGS.glob("*.yml")))
        raise ElfError(f"no training config '{name}'; there is {have}, or give a .yml file")
    data: Any = yaml.safe_load(file.read_text("utf-8"))
    return from_dict(TrainConfig, data, file.name)
