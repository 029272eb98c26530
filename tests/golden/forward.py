"""forward_*: the network alone, in both modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from elf_engine.backends.protocol import Backend
from tests.golden.archive import Archive, Case
from tests.golden.compare import Row, Tolerance, compare
from tests.golden.models import check_meta, network_backend, row_length

TOLERANCE = Tolerance(5e-5)
Compiled = Callable[..., Any]
Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def check(archive: Archive, backend_name: str) -> Iterator[Row]:
    """Output of every case, and the logits of those in decode mode."""
    backend = network_backend(backend_name, archive.under("params"), row_length(archive, "x"))
    check_meta(archive, backend.config.network)
    denoise = backend.compile(lambda net, *arrays: net.denoise(*arrays))
    heads = backend.compile(HEADS[backend_name])
    for case in archive.cases.values():
        where = (case.name, "output", backend_name)
        if "decoder_step_active" in case and case.number("decoder_step_active"):
            # The stored cases have a self-condition in decode mode too, which sampling never has:
            # the protocol cannot say it, so both heads are called beneath it.
            output, logits = run_heads(backend, heads, case)
            yield compare(where, output, case["output"], TOLERANCE)
            yield compare((case.name, "logits", backend_name), logits, case["logits"], TOLERANCE)
        else:
            yield compare(where, run_denoise(backend, denoise, case), case["output"], TOLERANCE)


def run_denoise(backend: Backend, denoise: Compiled, case: Case) -> npt.NDArray[Any]:
    """The case through `Network.denoise`."""
    width = backend.config.network.embedding_dim
    x = case["x"]
    x_prev = x[..., width:] if x.shape[-1] == 2 * width else np.zeros_like(x)
    arrays = (np.ascontiguousarray(x[..., :width]), np.ascontiguousarray(x_prev), case["t"])
    put = backend.asarray
    return backend.to_numpy(denoise(*map(put, arrays), put(scale(case)), valid(backend, case)))


def run_heads(backend: Backend, heads: Compiled, case: Case) -> Arrays:
    """Both heads on the hidden state of decode mode."""
    put = backend.asarray
    w = put(scale(case)) if "self_cond_cfg_scale" in case else None
    output, logits = heads(put(case["x"]), put(case["t"]), w, valid(backend, case))
    return backend.to_numpy(output), backend.to_numpy(logits)


def scale(case: Case) -> npt.NDArray[Any]:
    """The stored guidance scale (B,); 1 where the network has none."""
    if "self_cond_cfg_scale" in case:
        return case["self_cond_cfg_scale"]
    return np.ones_like(case["t"])


def valid(backend: Backend, case: Case) -> Any:
    """The stored attention mask as the engine's `valid`; None where none was passed."""
    if "attention_mask" not in case:
        return None
    return backend.asarray(case["attention_mask"].astype(np.bool_))


def _jax_heads(net: Any, x: Any, t: Any, w: Any, seen: Any) -> Any:
    return net.module.apply(net.params, x, t, w, seen, t)  # decode mode, where t is 1


def _torch_heads(net: Any, x: Any, t: Any, w: Any, seen: Any) -> Any:
    hidden = net.module.trunk(x, t, w, seen, decode=True)
    return net.module.clean_estimate(hidden), net.module.token_logits(hidden)


HEADS: dict[str, Compiled] = {"jax": _jax_heads, "torch": _torch_heads}
