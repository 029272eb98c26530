"""The reference arrays, as tests; and the command's own behaviour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elf_engine.backends import NAMES
from elf_engine.config import EncoderSpec, NetworkSpec
from elf_engine.model_dir import expected_shapes
from elf_engine.types import Weights
from tests.golden import forward, t5
from tests.golden.__main__ import main
from tests.golden.archive import Archive, Case
from tests.golden.compare import Tolerance, compare
from tests.golden.kinds import Item, find
from tests.golden.models import encoder_backend, network_backend

HERE = Path(__file__).parent / "files"
SHARED = Path(__file__).parents[3] / "shared" / "golden"


def _items() -> list[Item]:
    """The bundled files, and those beside the repository that are too large to bundle."""
    items = find(HERE)
    if SHARED.is_dir():
        bundled = {path.name for path in HERE.iterdir() if path.is_file()}
        items += [item for item in find(SHARED) if item.path.name not in bundled]
    return items


CHECKED = [
    pytest.param(item, backend, id=f"{item.path.parent.name}-{item.path.stem}-{backend}")
    for item in _items()
    if item.covered and item.kind.name != "training"  # tests/training has those
    for backend in item.kind.backends(NAMES)
]


@pytest.mark.parametrize(("item", "backend"), CHECKED)
def test_within_tolerance(item: Item, backend: str) -> None:
    rows = list(item.rows((backend,)))
    assert rows
    assert [row for row in rows if not row.ok] == []


def _stored(name: str) -> dict[str, Any]:
    with np.load(HERE / name) as stored:
        return {key: stored[key] for key in stored.files}


def _forward_archive(tmp_path: Path, scale: float = 1.0) -> Path:
    """The bundled forward arrays, the `denoise` output multiplied by `scale`."""
    arrays = _stored("forward_nosctok.npz")
    arrays["denoise/output"] = arrays["denoise/output"] * np.float32(scale)
    np.savez(tmp_path / "renamed.npz", **arrays)
    return tmp_path / "renamed.npz"


def test_command_recognises_contents_under_any_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(_forward_archive(tmp_path)), "--backend", "torch"]) == 0
    assert "7 comparisons within their limits, 0 past them" in capsys.readouterr().out


def test_command_fails_past_the_tolerance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(_forward_archive(tmp_path, 1.001)), "--backend", "torch"]) == 1
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if "PAST" in line] == ["denoise/output"]


def test_command_fails_on_a_wrong_token(tmp_path: Path) -> None:
    arrays = _stored("trajectories_noselfcond.npz")
    name = next(name for name in arrays if name.endswith("/token_ids"))
    arrays[name][0, 0] += 1
    np.savez(tmp_path / "trajectory.npz", **arrays)
    assert main([str(tmp_path / "trajectory.npz"), "--backend", "torch"]) == 1


def test_uncovered_files_are_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content: dict[str, Any] = {"teacher/a": np.zeros(2), "student/a": np.zeros(2)}
    np.savez(tmp_path / "pd.npz", **content)
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "1 files not covered yet" in out
    assert "nothing was checked" in out


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"\x93NUMPY", b"text"])
def test_unreadable_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    assert main([str(tmp_path / "a.npz")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_missing_path_and_unknown_arrays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "absent")]) == 2
    assert main([str(tmp_path)]) == 2
    np.savez(tmp_path / "odd.npz", x=np.zeros(3))
    assert main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_objects_never_load(tmp_path: Path) -> None:
    content: dict[str, Any] = {"params0/a": np.array([{}], dtype=object)}
    np.savez(tmp_path / "a.npz", **content)
    assert main([str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("found", "ok"), [([1.0, 2.0], True), ([1.0, np.nan], False), ([1.0], False)]
)
def test_comparison_refuses_nan_and_shapes(found: list[float], ok: bool) -> None:
    row = compare(("case", "x", "numpy"), found, np.array([1.0, 2.0]), Tolerance(1e-6))
    assert row.ok is ok


# Sizes unlike the bundled files', each different from every other, so that none can be mistaken
# for another: heads * d_kv is not d_model, and depth is not a multiple of 4.
NETWORK = NetworkSpec(
    embedding_dim=24,
    hidden=48,
    depth=5,
    heads=3,
    bottleneck=12,
    vocab=71,
    max_length=20,
    time_tokens=3,
    guidance_tokens=2,
    mode_tokens=5,
)
ENCODER = EncoderSpec(
    vocab=71, d_model=24, d_kv=6, d_ff=40, layers=3, heads=2, latent_mean=0.1, latent_std=0.25
)


def _random(spec: NetworkSpec | EncoderSpec) -> Weights:
    draw = np.random.default_rng(5)
    return {
        name: (draw.standard_normal(shape) * 0.2).astype(np.float32)
        for name, shape in expected_shapes(spec).items()
    }


@pytest.mark.parametrize(
    "spec",
    [
        NETWORK,
        replace(NETWORK, guidance_tokens=0),
        replace(NETWORK, guidance_tokens=0, self_conditioning=False),
    ],
    ids=["main", "nosctok", "noselfcond"],
)
def test_network_sizes_are_read_from_arrays(spec: NetworkSpec) -> None:
    draw, params = np.random.default_rng(6), _random(spec)
    width = spec.embedding_dim * (2 if spec.self_conditioning else 1)
    mask = np.ones((3, spec.max_length), np.int32)
    mask[1, 13:] = 0
    case: dict[str, Any] = {
        "x": draw.standard_normal((3, spec.max_length, width)).astype(np.float32),
        "t": np.ones(3, np.float32),
        "attention_mask": mask,
        "decoder_step_active": np.int32(1),
    }
    if spec.guidance_tokens:
        case["self_cond_cfg_scale"] = np.array([0.5, 1, 3], np.float32)
    backend = network_backend("jax", params, spec.max_length)
    assert backend.config.network == spec
    heads = backend.compile(forward.HEADS["jax"])
    stored = forward.run_heads(backend, heads, Case("test", "decode", case))
    case |= dict(zip(("output", "logits"), stored, strict=True))
    arrays: dict[str, Any] = {f"params/{name}": a for name, a in params.items()}
    arrays |= {f"decode/{name}": np.asarray(a) for name, a in case.items()}
    arrays |= {"meta/depth": np.int32(spec.depth)}
    rows = list(forward.check(Archive(Path("test.npz"), arrays), "torch"))
    assert [row.ok for row in rows] == [True, True]


@pytest.mark.parametrize("gated", [False, True])
def test_encoder_sizes_are_read_from_arrays(gated: bool) -> None:
    spec = replace(ENCODER, gated=gated)
    params = _random(spec)
    ids = np.random.default_rng(7).integers(0, spec.vocab, (2, 20)).astype(np.int32)
    plain = replace(spec, latent_mean=0.0, latent_std=1.0)
    backend = encoder_backend("jax", plain, params)
    hidden = t5.encode(backend, Case("test", "nomask", {"input_ids": ids}))
    meta = {
        "vocab_size": spec.vocab,
        "d_model": spec.d_model,
        "d_kv": spec.d_kv,
        "d_ff": spec.d_ff,
        "num_layers": spec.layers,
        "num_heads": spec.heads,
        "is_gated_act": int(gated),
        "latent_mean": spec.latent_mean,
        "latent_std": spec.latent_std,
    }
    arrays = {f"params/{name}": a for name, a in params.items()}
    arrays |= {f"meta/{name}": np.asarray(value) for name, value in meta.items()}
    arrays |= {"a/input_ids": ids, "a/last_hidden_state": hidden}
    arrays |= {"a/latents": (hidden - np.float32(0.1)) / np.float32(0.25)}
    rows = list(t5.check(Archive(Path("test.npz"), arrays), "torch"))
    assert [(row.quantity, row.ok) for row in rows] == [("hidden", True), ("latents", True)]
