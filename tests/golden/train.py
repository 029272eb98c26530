"""train_*: losses and gradients of the trainer's own objective, and one whole step (JAX)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from elf_engine.backends.jax.model import ELFNetwork
from elf_engine.config import EncoderSpec, FlowSpec, NetworkSpec
from elf_engine.types import Weights
from elf_engine.weights import flatten, unflatten
from tests.golden import optim
from tests.golden.archive import Archive, BadFileError, Case
from tests.golden.compare import EQUAL, Row, Tolerance, compare, compare_all
from tests.golden.models import QUICK, network_spec, row_length
from tests.golden.t5 import HIDDEN
from training.config import ObjectiveConfig
from training.objective import Draws, Inputs, Split, losses
from training.optimizer import ema, make_optimizer
from training.step import latents, visible

LOSS = Tolerance(1e-5, relative=True)
GRADIENT = 2e-6  # times the gradient's global norm
Array = npt.NDArray[Any]

encode = jax.jit(latents, static_argnames="spec", compiler_options=QUICK)


@partial(jax.jit, static_argnames=("net", "split", "flow", "config"), compiler_options=QUICK)
def objective(params: Any, inputs: Inputs, draws: Draws, **static: Any) -> Any:
    """((loss, metrics), gradients)."""
    run = partial(losses, inputs=inputs, draws=draws, **static)
    return jax.value_and_grad(run, has_aux=True)(params)


def check(
    archive: Archive, backend_name: str, only: tuple[str, ...] | None = None
) -> Iterator[Row]:
    """Encoder masks, latents, losses and gradients of every case (or of those named), and new
    parameters where stored."""
    params = archive.under("params")
    net = ELFNetwork(network_spec(params, row_length(archive, "x0_encoded")))
    encoder = archive.under("encoder_params")
    spec = encoder_spec(encoder, archive.meta)
    tree = jax.tree.map(jnp.asarray, unflatten(params))
    for case in archive.cases.values():
        if only is not None and case.name not in only:
            continue
        yield from _encoded(case, spec, encoder)
        (loss, found), grads = replay(net, tree, case)
        p = case.number("decoder_prob")
        for name, mean, share in (("l2", "denoise", 1 - p), ("ce", "decode", p)):
            metric = float(found[mean]) / share if share else 0.0
            yield compare((case.name, name, "jax"), metric, case[f"metric_{name}_loss"], LOSS)
        yield compare((case.name, "loss", "jax"), loss, case["loss"], LOSS)
        stored, norm = Archive(archive.path, case.arrays), case["grad_global_norm"]
        yield compare((case.name, "norm", "jax"), optax.tree.norm(grads), norm, LOSS)
        limit = Tolerance(GRADIENT * float(norm))
        where = (case.name, "gradients", "jax")
        yield compare_all(where, flatten(grads), stored.under("grad"), limit)
        if "lr" in case:
            yield from _whole_step(stored, case, tree, grads)


def encoder_spec(params: Weights, meta: Case) -> EncoderSpec:
    """The sizes that the shapes of an encoder's parameters imply."""
    first = "encoder/block_0/layer_0/SelfAttention"
    try:
        vocab, width = params["shared/embedding"].shape
        heads = params[f"{first}/relative_attention_bias/rel_embedding"].shape[1]
        inner = params[f"{first}/q/kernel"].shape[1]
        wide = params["encoder/block_0/layer_1/DenseReluDense/wo/kernel"].shape[0]
    except KeyError as error:
        raise BadFileError(f"encoder parameter {error.args[0]} is missing") from error
    return EncoderSpec(
        vocab=vocab,
        d_model=width,
        d_kv=inner // heads,
        d_ff=wide,
        layers=len({k.split("/")[1] for k in params if k.startswith("encoder/block_")}),
        heads=heads,
        gated="encoder/block_0/layer_1/DenseReluDense/wi_0/kernel" in params,
        latent_mean=meta.number("latent_mean"),
        latent_std=meta.number("latent_std"),
    )


def _masks(case: Case) -> tuple[Array, Array, Array]:
    """known (B,S), valid (B,S) and drop (B,)."""
    names = ("batch_cond_seq_mask", "batch_attention_mask", "batch_label_drop_mask")
    known, valid, drop = (case[name] > 0 for name in names)
    return known, valid, drop


def _encoded(case: Case, spec: EncoderSpec, encoder: Weights) -> Iterator[Row]:
    known, valid, drop = _masks(case)
    seen = np.asarray(visible(known, valid, np.zeros_like(drop)))  # stored as before the drop
    mask = case["batch_encoder_attention_mask"] > 0
    yield compare((case.name, "encoder_mask", "jax"), seen, mask, EQUAL)
    x = encode(spec, unflatten(encoder), case["batch_input_ids"], known, valid, drop)
    limit = Tolerance(HIDDEN / spec.latent_std)
    yield compare((case.name, "latents", "jax"), np.asarray(x), case["x0_encoded"], limit)


class Replay(NamedTuple):
    """A stored case as the objective takes it, in NumPy, its rows in the order that it wants."""

    inputs: Inputs
    draws: Draws
    split: Split
    flow: FlowSpec
    config: ObjectiveConfig


def replayed(spec: NetworkSpec, case: Case) -> Replay:
    """The case's batch and draws."""
    rows = len(case["t"])
    if case.number("decoder_step_active"):
        order, split = np.arange(rows), Split(rows, 0, rows)
        denoise, decode = order[:0], order
    else:
        use = case["use_self_cond_mask"] > 0 if spec.self_conditioning else np.zeros(rows)
        order, split = np.argsort(-1 * use, kind="stable"), Split(0, int(use.sum()), rows)
        denoise, decode = order, order[:0]
    known, valid, drop = _masks(case)
    inputs = (case["batch_input_ids"], case["x0_encoded"], known, valid, drop)
    w = case["self_cond_cfg_scale"] if spec.guidance_tokens else np.ones(rows, np.float32)
    draws = Draws(
        t=case["t"][denoise],
        w=w[order],
        noise=case["noise"][denoise] * np.float32(case.number("denoiser_noise_scale")),
        lam=case["decoder_lambda_t"][decode],
        decode_noise=case["decoder_noise"][decode],
    )
    config = ObjectiveConfig(
        branch="step",
        loss_mask="eos" if case.number("pad_token_is_eos") else "pad",
        padding="attended",
        decode_condition="noised",
    )
    flow = FlowSpec(t_eps=case.number("t_eps"))
    return Replay(Inputs(*(a[order] for a in inputs)), draws, split, flow, config)


def replay(net: ELFNetwork, params: Any, case: Case) -> Any:
    """The case through the trainer's objective."""
    inputs, draws, split, flow, config = replayed(net.spec, case)
    inputs, draws = jax.tree.map(jnp.asarray, (inputs, draws))
    return objective(params, inputs, draws, net=net, split=split, flow=flow, config=config)


def _whole_step(stored: Archive, case: Case, params: Any, grads: Any) -> Iterator[Row]:
    """Clip, Muon and average, as one step of the published recipe."""
    rate = case.number("lr")
    plan = replace(optim.MUON, learning_rate=rate, adam_learning_rate=rate)
    optimizer = make_optimizer(plan, steps=1)

    @partial(jax.jit, compiler_options=QUICK)
    def step(params: Any, grads: Any) -> Any:
        change, _ = optimizer.update(grads, optimizer.init(params), params)
        return optax.apply_updates(params, change)

    new = step(params, grads)
    old = unflatten(stored.under("old_ema"))
    average = ema(old, new, case.number("ema_decay"))
    for name, tree, limit in (
        ("new_params", new, optim.OWN_GRADIENTS),
        ("new_ema", average, optim.AVERAGE),
    ):
        yield compare_all((case.name, name, "jax"), flatten(tree), stored.under(name), limit)
