"""`training.objective` in PyTorch: the same rows, passes, targets and losses, line by line."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from elf_engine.backends.torch.model import Elf
from elf_engine.config import FlowSpec
from elf_engine.flow import interpolate, velocity_from_x
from training.config import ObjectiveConfig
from training.objective import Draws, Inputs, Split


def draw(
    generator: torch.Generator,
    shape: tuple[int, int, int],
    split: Split,
    flow: FlowSpec,
    config: ObjectiveConfig,
) -> Draws:
    """Random numbers for a batch of `shape` (B,S,D), as `training.objective.draw` distributes
    them; not the same numbers."""
    _, s, d = shape
    n, m = split.rows - split.decode, split.decode
    low, high = torch.log1p(torch.tensor([config.w_min, config.w_max])).tolist()

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    return Draws(
        t=torch.sigmoid(flow.p_mean + flow.p_std * normal(n)),
        w=torch.expm1(low + torch.rand(split.rows, generator=generator) * (high - low)),
        noise=flow.noise_scale * normal(n, s, d),
        lam=torch.sigmoid(config.lambda_mean + config.lambda_std * normal(m, s)),
        decode_noise=config.decode_noise * normal(m, s, d),
    )


def _states(
    inputs: Inputs, draws: Draws, split: Split, flow: FlowSpec, config: ObjectiveConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z and clean (B,S,D), data velocity (N,S,D) and gap (N,1,1) of the denoise rows."""
    m, hold = split.decode, inputs.known[:, :, None]
    kept = inputs.x.masked_fill(hold & inputs.drop[:, None, None], 0.0)
    z_decode = interpolate(kept[:m], draws.decode_noise, draws.lam[:, :, None])
    t = draws.t[:, None, None]
    z = interpolate(inputs.x[m:], draws.noise, t)
    gap = (1.0 - t).clamp(min=flow.t_eps)
    velocity = velocity_from_x(inputs.x[m:], z, gap)
    clean = kept.masked_fill(~hold, 0.0)
    z = torch.where(hold[m:], clean[m:], z)
    if config.decode_condition == "clean":
        z_decode = torch.where(hold[:m], clean[:m], z_decode)
    return torch.cat([z_decode, z]), clean, velocity, gap


def losses(
    net: Elf,
    inputs: Inputs,
    draws: Draws,
    split: Split,
    flow: FlowSpec,
    config: ObjectiveConfig,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(denoise + decode loss weighted by their rows, metrics): see `training.objective.losses`."""
    m, n = split.decode, split.self_cond if net.spec.self_conditioning else 0
    conditioned = slice(m, m + n)
    z, clean, velocity, gap = _states(inputs, draws, split, flow, config)
    times = torch.cat([torch.ones(m), draws.t])
    decode = (torch.arange(split.rows) < m).float()
    seen = inputs.valid if config.padding == "masked" else None

    def hidden(rows: slice, x_prev: Tensor) -> Tensor:
        both = torch.cat([z[rows], x_prev], -1) if net.spec.self_conditioning else z[rows]
        valid, places = (None if a is None else a[rows] for a in (seen, inputs.positions))
        return net.trunk(both, times[rows], draws.w[rows], valid, decode[rows], places)

    x_prev = x_init = clean[conditioned]
    if n:
        with torch.no_grad():
            x_init = net.clean_estimate(hidden(conditioned, x_prev))
        x_prev = torch.where(inputs.known[conditioned, :, None], x_prev, x_init)
    # Decoding sees a zero self-condition at every position, as at inference.
    previous = torch.cat([torch.zeros_like(clean[:m]), x_prev, clean[m + n :]])
    h = hidden(slice(None), previous)

    v, aim = velocity_from_x(net.clean_estimate(h[m:]), z[m:], gap), velocity
    if net.spec.guidance_tokens:
        v_uncond = velocity_from_x(x_init, z[conditioned], gap[:n])
        scale = (1.0 - 1.0 / draws.w[conditioned])[:, None, None]
        guided = velocity[:n] + scale * (v[:n].detach() - v_uncond)
        aim = torch.cat([guided, velocity[n:]])
    error = ((v - aim) ** 2).mean(-1)
    plain_error = ((v.detach() - velocity) ** 2).mean(-1)
    free = ~inputs.known if config.loss_mask == "eos" else inputs.valid & ~inputs.known
    nll = _token_losses(net, h[:m], inputs.ids[:m], free[:m])
    return _means((nll, error, plain_error), free.float(), split)


def _token_losses(net: Elf, h: Tensor, ids: Tensor, free: Tensor) -> Tensor:
    """Cross-entropy (M,S) of the decode rows; the vocabulary is scored at targets only."""
    logits = net.token_logits(h[free][None])[0]
    nll = torch.zeros(free.shape)
    return nll.masked_scatter(free, F.cross_entropy(logits, ids[free].long(), reduction="none"))


def _means(
    errors: tuple[Tensor, Tensor, Tensor], target: Tensor, split: Split
) -> tuple[Tensor, dict[str, Tensor]]:
    nll, error, plain_error = errors
    m, share = split.decode, split.decode / split.rows
    decode_rows = (nll * target[:m]).sum(1)
    denoise = (error * target[m:]).sum() / target[m:].sum().clamp(min=1.0)
    decode = decode_rows.sum() / target[:m].sum().clamp(min=1.0)
    rows = torch.cat([decode_rows.detach(), (plain_error * target[m:]).sum(1)])
    return (1.0 - share) * denoise + share * decode, {
        "denoise": denoise.detach(),
        "decode": decode.detach(),
        "per_row": rows,
        "targets": target.sum(1),
    }
