"""The torch side of `elf_engine.backends.protocol`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from elf_engine import encoders
from elf_engine.backends.torch.model import Elf
from elf_engine.backends.torch.t5 import T5Encoder
from elf_engine.backends.torch.weights import load
from elf_engine.config import EncoderSpec, ModelConfig, NetworkSpec
from elf_engine.encoders import Encode
from elf_engine.errors import ElfError
from elf_engine.model_dir import missing_encoder
from elf_engine.types import NumpyArray, Weights

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device() -> torch.device:
    """ELF_DEVICE if set, else the first CUDA device, else the CPU. Raises ElfError when
    ELF_DEVICE names no usable device."""
    name = os.environ.get("ELF_DEVICE", "")
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.ones(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        raise ElfError(
            f"ELF_DEVICE '{name}' cannot be used by torch; set it to cpu, cuda or cuda:N"
        ) from error
    return torch.device(name)


class TorchNetwork:
    """`protocol.Network` over the module."""

    def __init__(self, module: Elf) -> None:
        self.module = module

    def denoise(
        self,
        z: Float[Tensor, "B S D"],
        x_prev: Float[Tensor, "B S D"],
        t: Float[Tensor, " B"],
        w: Float[Tensor, " B"],
        valid: Bool[Tensor, "B S"] | None,
        positions: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """See `protocol.Network.denoise`."""
        inputs = self._input(z, x_prev)
        hidden = self.module.trunk(inputs, t, w, valid, False, positions)
        return self.module.clean_estimate(hidden)

    def logits(
        self,
        z: Float[Tensor, "B S D"],
        w: Float[Tensor, " B"],
        valid: Bool[Tensor, "B S"] | None,
        positions: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B S V"]:
        """See `protocol.Network.logits`."""
        inputs, t = self._input(z, torch.zeros_like(z)), torch.ones_like(z[:, 0, 0])
        hidden = self.module.trunk(inputs, t, w, valid, True, positions)
        return self.module.token_logits(hidden)

    def _input(self, z: Tensor, x_prev: Tensor) -> Tensor:
        return torch.cat([z, x_prev], dim=-1) if self.module.spec.self_conditioning else z


class TorchBackend:
    """`protocol.Backend` on one device, in inference mode."""

    name = "torch"
    xp: Any = torch
    fixed_shapes = False

    def __init__(
        self,
        config: ModelConfig,
        network: TorchNetwork,
        encoder: Encode | None,
        device: torch.device,
    ) -> None:
        self.config = config
        self.network = network
        self.device = device
        self._encoder = encoder

    def asarray(self, a: NumpyArray) -> Tensor:
        """A copy of `a` on the device, dtype kept."""
        return torch.tensor(a, device=self.device)

    def to_numpy(self, a: Tensor) -> NumpyArray:
        """`a` as NumPy array; on the CPU it shares memory with the tensor."""
        array: NumpyArray = a.detach().cpu().numpy()
        return array

    @torch.inference_mode()
    def encode(
        self,
        ids: Int[Tensor, "B S"],
        visible: Bool[Tensor, "B S"] | Bool[Tensor, "B S S"] | None,
    ) -> Float[Tensor, "B S D"]:
        """Normalised latents; see `protocol.Backend.encode`. Raises ElfError when the model has
        no encoder."""
        if self._encoder is None:
            raise missing_encoder(self.config.name)
        spec = self.config.encoder
        latents: Tensor = (self._encoder(ids, visible) - spec.latent_mean) / spec.latent_std
        return latents

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` with the network bound, in inference mode."""

        def bound(*arrays: Any) -> Any:
            with torch.inference_mode():
                return fn(self.network, *arrays)

        return bound


def make_backend(
    config: ModelConfig, network: Weights, encoder: Weights, dtype: str
) -> TorchBackend:
    """See `protocol.BackendFactory`. Raises ElfError for an unknown dtype, an encoder kind that
    torch lacks, or weights that do not fit the config."""
    if dtype not in DTYPES:
        raise ElfError(f"dtype '{dtype}' is unknown; choose one of {', '.join(DTYPES)}")
    device = choose_device()
    module = load_network(config.network, network, device, DTYPES[dtype])
    encode = _make_encoder(config.encoder, encoder, device)
    return TorchBackend(config, TorchNetwork(module), encode, device)


def load_network(
    spec: NetworkSpec, weights: Weights, device: torch.device, dtype: torch.dtype
) -> Elf:
    """The network with engine weights. Raises ElfError when they do not fit."""
    with torch.device("meta"):
        module = Elf(spec)
    return load(module, weights, device, dtype, "network")


def load_t5(spec: EncoderSpec, weights: Weights, device: torch.device) -> T5Encoder:
    """The encoder with engine weights, float32. Raises ElfError when they do not fit."""
    with torch.device("meta"):
        module = T5Encoder(spec)
    return load(module, weights, device, torch.float32, "encoder")


def _make_encoder(spec: EncoderSpec, weights: Weights, device: torch.device) -> Encode | None:
    if spec.kind != "t5":
        return encoders.get(spec.kind, "torch")(spec, weights)
    return load_t5(spec, weights, device) if weights else None
