"""The autoregressive baseline: laws of the network, its rows, its training and its directory."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner

from elf_engine import decoder_dir, model_dir
from elf_engine.backends.torch.decoder import Decoder, load_decoder
from elf_engine.backends.torch.layers import Cache
from elf_engine.config import DecoderSpec
from elf_engine.errors import ElfError
from tests.fakes import random_weights
from training.baselines import config as baselines
from training.baselines.config import BaselineConfig
from training.baselines.export import evaluate, export
from training.baselines.rows import Text, gapped, pack
from training.baselines.run import STATE, open_rows, run
from training.baselines.trainer import Trainer, token_losses
from training.train import cli

SPEC = DecoderSpec(vocab=40, hidden=16, depth=2, heads=2, max_length=24)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def net() -> Decoder:
    weights = random_weights(model_dir.expected_shapes(SPEC))
    return load_decoder(SPEC, weights, CPU, torch.float32)


def _ids(rows: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(16, 40, (rows, size)))


def _tiny(runs: Path, name: str, **changes: object) -> BaselineConfig:
    network = DecoderSpec(vocab=8192, hidden=32, depth=1, heads=2, max_length=32)
    base = BaselineConfig(
        name, like="tiny", runs=str(runs), network=network, steps=4, log_every=2, save_minutes=0
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@torch.inference_mode()
def test_no_token_sees_what_comes_after_it(net: Decoder) -> None:
    ids = _ids(1, 12)
    before = net(ids)
    for j in range(12):
        changed = ids.clone()
        changed[0, j] = (changed[0, j] - 16 + 1) % 24 + 16
        after = net(changed)
        torch.testing.assert_close(after[:, :j], before[:, :j], rtol=0, atol=0)
        assert (after[:, j] - before[:, j]).abs().max() > 1e-3


@torch.inference_mode()
@pytest.mark.parametrize("pieces", [(12,), (5, 7), (1,) * 12])
def test_a_cache_gives_what_the_whole_row_gives(net: Decoder, pieces: tuple[int, ...]) -> None:
    ids = _ids(3, 12)
    caches = [Cache(12) for _ in net.blocks]
    seen = torch.ones(12, 12, dtype=torch.bool).tril().expand(3, -1, -1)
    found, done = [], 0
    for size in pieces:
        part = slice(done, done + size)
        found.append(net.trunk(ids[:, part], seen[:, part, : done + size], caches))
        done += size
    torch.testing.assert_close(net.logits(torch.cat(found, 1)), net(ids), rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_texts_of_a_packed_row_are_each_as_alone(net: Decoder) -> None:
    texts = [Text("draft", tuple(_ids(1, n, n)[0].tolist()), 1) for n in (9, 5, 7, 3)]
    packed = pack(texts, 2, 16, 0)
    assert sorted(packed.tasks) == ["draft"] * 4
    ids = torch.from_numpy(packed.batch.ids).long()
    logits = net.logits(net.trunk(ids, torch.from_numpy(packed.seen)))
    for number in range(4):
        row, places = np.nonzero(packed.owner == number)
        own = logits[row[0], places]
        alone = net(ids[row[0], places][None])[0]
        torch.testing.assert_close(own, alone, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_losses_are_cross_entropies_of_the_learned_tokens(net: Decoder) -> None:
    texts = [Text("translate", (20, 21, 22, 23, 24), 3), Text("draft", (30, 31, 1), 1)]
    nll, owner = token_losses(net, pack(texts, 1, 10, 0))
    wanted = []
    for text in texts:
        ids = torch.tensor(text.ids)
        all_of = F.cross_entropy(net(ids[None])[0, :-1], ids[1:], reduction="none")
        wanted.append(all_of[text.first - 1 :])
    torch.testing.assert_close(nll, torch.cat(wanted), rtol=1e-4, atol=1e-4)
    assert owner.tolist() == [0, 0, 1, 1]


def test_one_table_reads_and_names_tokens(net: Decoder) -> None:
    found = model_dir.expected_shapes(SPEC)
    assert [name for name, shape in found.items() if SPEC.vocab in shape] == ["shared/embedding"]
    with torch.inference_mode():
        h = torch.ones(1, SPEC.hidden)
        torch.testing.assert_close(net.logits(h)[0], net.shared.weight.sum(1))


def test_rows_hold_their_text_and_what_is_learned(tmp_path: Path) -> None:
    source = open_rows(_tiny(tmp_path, "rows"))
    rows, tokenizer = source.source, source.source.tokenizer
    layout, seen = rows.layout, set()
    for text in rows.texts(0, 2000):
        seen.add(text.task)
        assert text.ids[0] == layout.tasks[text.task]
        assert text.ids[-1] == tokenizer.eos_id
        learned = tokenizer.decode(text.ids[text.first :])
        pairs = [(rows.table.source(i), rows.table.target(i)) for i in range(len(rows.table))]
        if text.task in ("translate", "summarise", "modernise"):
            source_text = tokenizer.decode(text.ids[: text.first])
            assert (source_text, learned) in pairs
        else:
            assert text.first == 1
            if text.task == "draft":
                assert learned in [b or a for a, b in pairs]
    assert seen == set(layout.tasks)
    plain = open_rows(_tiny(tmp_path, "rows", rows="texts"))
    for text in plain.source.texts(0, 500, plain=True):
        assert text.ids[0] == text.ids[-1] == tokenizer.eos_id
        assert not set(text.ids[1:-1]) & set(range(16))


def test_a_gap_is_written_behind_its_text() -> None:
    parts = [([20], False), ([21, 22], True), ([23], False), ([24], True)]
    assert gapped(6, 4, 1, parts) == (6, 20, 3, 23, 3, 4, 21, 22, 1, 24, 1)


def test_batches_are_full_and_fixed_by_the_step(tmp_path: Path) -> None:
    source = open_rows(_tiny(tmp_path, "rows"))
    batches = [source.draw(step) for step in (3, 3, 4)]
    np.testing.assert_array_equal(batches[0].batch.ids, batches[1].batch.ids)
    assert (batches[0].batch.ids != batches[2].batch.ids).any()
    assert all(b.batch.valid.mean() > 0.9 for b in batches)
    assert all((b.owner >= 0).sum() == b.batch.valid.sum() for b in batches)


def test_a_run_in_two_parts_is_the_run_in_one(tmp_path: Path) -> None:
    run(_tiny(tmp_path, "whole"))
    halved = _tiny(tmp_path, "halved")
    assert halved.optimizer.decay_from < 0  # else the number of steps would change the rate
    run(dataclasses.replace(halved, steps=2))
    run(halved)
    one, two = (_state(tmp_path / name) for name in ("whole", "halved"))
    assert one.keys() == two.keys()
    assert one["step"].item() == 4
    for name in one:
        assert torch.equal(one[name], two[name]), name
    assert not torch.equal(one["params/shared/embedding"], one["average/shared/embedding"])
    lines = [json.loads(x) for x in (tmp_path / "halved" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4]


def _state(directory: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(directory / STATE)


def test_it_learns_a_few_lines_by_heart() -> None:
    config = BaselineConfig(
        "few", network=dataclasses.replace(SPEC, hidden=32), compute="float32", steps=60,
        optimizer=dataclasses.replace(BaselineConfig("x").optimizer, warmup=5, learning_rate=0.02),
    )  # fmt: skip
    trainer = Trainer(config)
    texts = [Text("draft", (5, *_ids(1, 8, seed)[0].tolist(), 1), 1) for seed in range(4)]
    batch = pack(texts, 2, 24, 0)
    losses = [trainer.update(batch)["loss"] for _ in range(60)]
    assert losses[0] == pytest.approx(np.log(40), rel=0.1)
    assert losses[-1] < 0.7  # four first tokens stay open: log(4) / 9 at least
    ids = torch.tensor(texts[2].ids[:-1])
    with torch.inference_mode():
        assert trainer.net(ids[None])[0, 1:].argmax(-1).tolist() == list(texts[2].ids[2:])


def test_a_loss_far_off_or_not_finite_changes_nothing() -> None:
    trainer = Trainer(BaselineConfig("stop", network=SPEC, compute="float32"))
    batch = pack([Text("draft", (5, 20, 21, 1), 1)], 1, 8, 0)
    before = trainer.params["shared/embedding"].clone()
    assert not trainer.update(batch, limit=0.1)["ok"]
    assert trainer.step == 0
    assert torch.equal(trainer.params["shared/embedding"], before)
    trainer.params["shared/embedding"][20] = float("nan")
    assert not trainer.update(batch)["ok"]


def test_an_export_holds_the_average_and_reads_back(tmp_path: Path) -> None:
    run(_tiny(tmp_path, "out"))
    target = export(tmp_path / "out", tmp_path / "model", dtype="float32")
    files = decoder_dir.load(target)
    assert decoder_dir.is_decoder(target)
    state = _state(tmp_path / "out")
    for name, a in files.weights.items():
        np.testing.assert_array_equal(a, state[f"average/{name}"].numpy())
    assert files.config.layout.tasks["translate"] == 7
    with pytest.raises(ElfError, match="baseline of kind 'ar'"):
        model_dir.load(target)
    losses = evaluate(tmp_path / "out", 1)
    assert losses["loss"] == pytest.approx(np.log(8192), rel=0.05)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    config = _tiny(tmp_path, "one", steps=1)
    run(config)
    with pytest.raises(ElfError, match="shared/embedding is missing or of another shape"):
        run(dataclasses.replace(config, network=dataclasses.replace(config.network, hidden=16)))
    with pytest.raises(ElfError, match="another mixture"):
        run(dataclasses.replace(config, rows="texts"))
    (tmp_path / "one" / STATE).write_bytes(b"\x10" * 40)
    with pytest.raises(ElfError, match="cannot be read"):
        run(config)
    with pytest.raises(ElfError, match="trained by muon"):
        dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, accumulate=2))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "ar-startr"], "did you mean 'ar-starter'?"),
        (["--config", "ar-starter", "--set", "netwrk.depth=2"], "network.depth"),
        (["--config", "ar-starter", "--set", "network.depth=x"], "network.depth"),
        (["--config", "ar-starter", "--set", "network.heads=3"], "even head width"),
        ([], "ar-scorer"),
    ],
)
def test_a_bad_config_is_told_in_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["baseline", *arguments])
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1


def test_presets_have_the_sizes_they_say() -> None:
    def size(name: str) -> int:
        shapes = model_dir.expected_shapes(baselines.load(name).network)
        return sum(int(np.prod(shape)) for shape in shapes.values())

    starter = baselines.load("ar-starter").shared()
    opponent = sum(int(np.prod(s)) for s in model_dir.expected_shapes(starter.network).values())
    assert abs(size("ar-starter") / opponent - 1) < 0.05
    assert 2 * size("ar-scorer") < 15e6
    assert baselines.load("ar-starter").shared().batches == starter.batches
