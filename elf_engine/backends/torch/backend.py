"""The torch side of `elf_engine.backends.protocol`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from elf_engine.backends.torch.model import Elf
from elf_engine.backends.torch.t5 import T5Encoder
from elf_engine.backends.torch.weights import build
from elf_engine.config import ModelConfig
from elf_engine.errors import ElfError
from elf_engine.types import Weights

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
    ) -> Float[Tensor, "B S D"]:
        """See `protocol.Network.denoise`."""
        hidden = self.module.trunk(self._input(z, x_prev), t, w, valid, decode=False)
        return self.module.clean_estimate(hidden)

    def logits(
        self,
        z: Float[Tensor, "B S D"],
        w: Float[Tensor, " B"],
        valid: Bool[Tensor, "B S"] | None,
    ) -> Float[Tensor, "B S V"]:
        """See `protocol.Network.logits`."""
        inputs = self._input(z, torch.zeros_like(z))
        hidden = self.module.trunk(inputs, torch.ones_like(z[:, 0, 0]), w, valid, decode=True)
        return self.module.token_logits(hidden)

    def _input(self, z: Tensor, x_prev: Tensor) -> Tensor:
        return torch.cat([z, x_prev], dim=-1) if self.module.spec.self_conditioning else z


class TorchBackend:
    """`protocol.Backend` on one device, in inference mode."""

    name = "torch"
    xp: Any = torch

    def __init__(
        self, config: ModelConfig, network: Elf, encoder: T5Encoder, device: torch.device
    ) -> None:
        self.config = config
        self.network = TorchNetwork(network)
        self.encoder = encoder
        self.device = device

    def asarray(self, a: np.ndarray[Any, Any]) -> Tensor:
        """A copy of `a` on the device, dtype kept."""
        return torch.tensor(a, device=self.device)

    def to_numpy(self, a: Tensor) -> np.ndarray[Any, Any]:
        """`a` as NumPy array; on the CPU it shares memory with the tensor."""
        array: np.ndarray[Any, Any] = a.detach().cpu().numpy()
        return array

    @torch.inference_mode()
    def encode(
        self,
        ids: Int[Tensor, "B S"],
        visible: Bool[Tensor, "B S"] | Bool[Tensor, "B S S"] | None,
    ) -> Float[Tensor, "B S D"]:
        """Normalised latents; see `protocol.Backend.encode`."""
        spec = self.config.encoder
        latents: Tensor = (self.encoder(ids, visible) - spec.latent_mean) / spec.latent_std
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
    if config.encoder.kind != "t5":
        raise ElfError(f"encoder kind '{config.encoder.kind}' is unknown to torch; it has: t5")
    device = choose_device()
    return TorchBackend(
        config,
        build(Elf, config.network, network, device, DTYPES[dtype]),
        build(T5Encoder, config.encoder, encoder, device, torch.float32),
        device,
    )
