"""The autoregressive baseline as an engine and as a scorer: seeded, bounded, scored by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import Result

from app.evaluation.generate import Job, generate
from app.evaluation.sampling import run_many
from app.evaluation.scorers import load_scorer
from editors.request import EditRequest
from elf_engine import decoder_dir, decoding, model_dir
from elf_engine.config import DecodeSpec, SampleSpec
from elf_engine.decoding import DecoderEngine
from elf_engine.errors import ElfError
from elf_engine.layout import Free, build_row, pair_pieces
from elf_engine.metrics import decoder as scorer_module
from tests.evaluation.common import read_jsonl, tiny_decoder_dir
from tests.fakes import tiny_model_dir

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_decoder_dir(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def engine(directory: Path) -> DecoderEngine:
    return DecoderEngine.load(directory)


def _requests(task: str) -> list[EditRequest]:
    gap = " [[2]] end" if task == "infill" else " too"
    texts = ["A", "The old house.", "It rains, and more than that", "No", "Fine words"]
    return [
        EditRequest(task, text + gap, first=k, settings=SampleSpec(seed=k))
        for k, text in enumerate(texts)
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("task", ["translate", "infill", "draft"])
def test_many_at_once_are_each_as_alone(
    engine: DecoderEngine, task: str, temperature: float
) -> None:
    tuned = engine.with_decoding(DecodeSpec(temperature, 0.9))
    requests = _requests(task)
    together = [made.text for made in run_many(tuned, requests)]
    assert together == [run_many(tuned, [request])[0].text for request in requests]
    if temperature:
        others = [
            dataclasses.replace(r, settings=SampleSpec(seed=r.settings.seed + 9))
            for r in requests
            if r.settings
        ]
        assert together != [made.text for made in run_many(tuned, others)]


def test_greedy_text_is_the_likeliest_token_each_time(engine: DecoderEngine) -> None:
    """Token by token over whole rows, without cache or padding."""
    layout, tokenizer = engine.config.layout, engine.tokenizer
    pieces = pair_pieces(layout, tokenizer.encode("Das Haus."), Free(12))
    row = build_row(layout, tokenizer.eos_id, "translate", pieces)
    other = build_row(layout, tokenizer.eos_id, "draft", [Free(20)])
    step = next(engine.sample(engine.batch([row, other]), SampleSpec(), [0, 0]))
    found = step.ids()[0]
    ids = list(row.ids[: row.free[0][0]])
    while len(ids) < row.free[0][1]:
        logits = engine.net.module(torch.tensor([ids]))[0, -1].detach()
        logits[[0, 3, 4, 5, 6, 7, 8, 9]] = -torch.inf  # what stands for no text
        ids.append(int(logits.argmax()))
        if ids[-1] == tokenizer.eos_id:
            break
    wanted = ids + [tokenizer.eos_id] * (row.free[0][1] - len(ids))
    assert found[: row.free[0][1]].tolist() == wanted


def test_text_behind_a_gap_is_shown_before_it(engine: DecoderEngine) -> None:
    ask = engine.tokenizer.encode
    row = build_row(
        engine.config.layout, 1, "infill", [ask("ab"), Free(3), ask("cd"), Free(2), ask("e")]
    )
    shown: list[list[int]] = []

    class Net:
        def write(self, prompts: list[list[int]], most: int, choose: object) -> list[list[int]]:
            shown.extend([list(p) for p in prompts])
            return [ask("xyz")[:most] for _ in prompts]

        def token_nll(self, ids: object) -> object: ...

    told = dataclasses.replace(engine, net=Net())  # type: ignore[arg-type]
    step = next(told.sample(told.batch([row]), SampleSpec(), [0]))
    found = step.ids()[0][: len(row)].tolist()
    front = [6, *ask("ab"), 3, *ask("cd"), 3, *ask("e"), 4]
    assert shown == [front, [*front, *ask("xyz"), 1]]
    assert found == [6, *ask("ab"), *ask("xyz"), *ask("cd"), *ask("xy"), *ask("e")]


def test_a_gap_of_a_fixed_length_has_no_end_in_it(engine: DecoderEngine) -> None:
    made = run_many(engine.with_decoding(DecodeSpec(5.0)), _requests("infill"))
    assert all(not m.error for m in made)
    assert all(len(m.written.encode()) >= 1 for m in made)


@pytest.mark.parametrize(
    ("u", "top_p", "token"),
    [(0.0, 1.0, 2), (0.49, 1.0, 2), (0.51, 1.0, 0), (0.79, 1.0, 0), (0.81, 1.0, 1),
     (0.99, 0.6, 0), (0.62, 0.6, 2), (0.64, 0.6, 0), (0.99, 0.4, 2)],
)  # fmt: skip
def test_tokens_are_drawn_by_their_shares(u: float, top_p: float, token: int) -> None:
    logits = np.log(np.asarray([[0.3, 0.2, 0.5]], np.float32))
    assert decoding.pick(logits, np.asarray([u]), DecodeSpec(1.0, top_p))[0] == token
    assert decoding.pick(logits, np.asarray([u]), DecodeSpec(0.0, top_p))[0] == 2
    assert decoding.pick(logits, np.asarray([0.99]), DecodeSpec(0.01, 1.0))[0] == 2


def test_scores_are_cross_entropies_with_the_end_counted(
    directory: Path, engine: DecoderEngine
) -> None:
    scorer = load_scorer(str(directory), Path())
    texts = ["The house.", "", "Ein längerer Text mit mehr."]
    sums, counts = scorer.nll(texts)
    for text, total, count in zip(texts, sums, counts, strict=True):
        ids = torch.tensor([1, *engine.tokenizer.encode(text), 1])
        logits = engine.net.module(ids[None, :-1])[0]
        assert total == pytest.approx(
            F.cross_entropy(logits, ids[1:], reduction="sum").item(), 1e-5
        )
        assert count == len(ids) - 1


@pytest.mark.parametrize("size", [64, 65, 66, 150])
def test_a_long_text_is_scored_once_with_half_a_window_of_context(
    directory: Path, engine: DecoderEngine, size: int
) -> None:
    scorer = scorer_module.read(directory)
    text = "".join(chr(97 + (7 * k) % 26) for k in range(size - 1))
    found = scorer.token_nll([text])[0]
    ids = torch.tensor([1, *engine.tokenizer.encode(text), 1])
    assert len(found) == size
    for token in {1, 32, 64, size, size // 2, size - 1}:
        # 64 tokens at first; then windows that show 32 tokens before those they score.
        start = 0 if token <= 64 else 33 * (1 + (token - 65) // 33)
        logits = engine.net.module(ids[None, start:token])[0, -1]
        wanted = F.cross_entropy(logits, ids[token]).item()
        assert found[token - 1] == pytest.approx(wanted, 1e-4)


def test_every_command_takes_it(
    elf_eval: Command, directory: Path, corpus: Path, tmp_path: Path
) -> None:
    out, common = tmp_path / "a.jsonl", ("-m", directory, "--data", corpus)
    for task in ("unconditional", "translate", "summarise", "modernise", "infill", "prefix"):
        file = tmp_path / f"{task}.jsonl"
        made = elf_eval("generate", "--task", task, "-n", 3, "-o", file, *common)
        assert made.exit_code == 0, made.output
        assert len(read_jsonl(file)) == 3
        assert {row["model"] for row in read_jsonl(file)} == {"tiny-ar"}
    draw = ("--set", "temperature=1", "--set", "top_p=0.9", "-o", out, *common)
    assert elf_eval("generate", "--task", "translate", "-n", 2, *draw).exit_code == 0
    row = read_jsonl(out)[0]
    assert row["settings"] == {"temperature": 1, "top_p": 0.9, "seed": row["seed"]}
    scores = ("--metrics", "ppl,ppl-word,bleu", "--scorer", directory, "--data", corpus, "--json")
    scored = elf_eval("score", "-g", out, *scores)
    assert scored.exit_code == 0, scored.output
    assert '"ppl-word:tiny-ar"' in scored.output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"steps": 4}, "'steps' is a flow's"),
        ({"temperature": -1}, "temperature -1"),
        ({"top_p": 0.0}, "top_p 0.0"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_settings_of_the_other_kind_are_refused(
    engine: DecoderEngine, corpus: Path, tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ElfError, match=said):
        generate(Job("translate", limit=1, settings=settings), engine, corpus, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_elf_refuses_a_temperature_and_the_baseline_a_rewrite(
    elf_eval: Command, engine: DecoderEngine, corpus: Path, tmp_path: Path
) -> None:
    elf = tiny_model_dir(tmp_path / "elf")
    refused = elf_eval(
        "generate", "-m", elf, "--task", "translate", "-n", 1, "--data", corpus,
        "--set", "temperature=1", "-o", tmp_path / "a",
    )  # fmt: skip
    assert refused.exit_code == 2
    assert "autoregressive" in refused.output
    request = EditRequest("rewrite", "The old house.", strength=0.5, settings=SampleSpec())
    with pytest.raises(ElfError, match="cannot rewrite"):
        run_many(engine, [request])


def test_a_damaged_directory_is_named(directory: Path, tmp_path: Path) -> None:
    files = decoder_dir.load(directory)
    wrong = dataclasses.replace(
        files.config, network=dataclasses.replace(files.config.network, depth=3)
    )
    with pytest.raises(ElfError, match="blocks_2"):
        decoder_dir.save(tmp_path / "x", wrong, files.weights, None)
    decoder_dir.save(tmp_path / "y", files.config, files.weights, None)
    text = (tmp_path / "y" / "config.json").read_text()
    (tmp_path / "y" / "config.json").write_text(text.replace('"depth": 2', '"depth": 200000000'))
    with pytest.raises(ElfError, match="blocks_2"):
        decoder_dir.load(tmp_path / "y")
    assert not model_dir._models_in(directory.parent)


@pytest.mark.skipif(not scorer_module.BUNDLED.is_dir(), reason="no scoring model is bundled yet")
def test_the_bundled_scorer_prefers_english_to_its_words_in_another_order() -> None:
    assert sum(file.stat().st_size for file in scorer_module.BUNDLED.iterdir()) < 15.5e6
    texts = [
        "The old man walked slowly up the hill and looked at the sea.",
        "This option tells the program to show all files in the directory.",
        "She opened the window, and the light of the morning came in.",
    ]
    random = np.random.default_rng(0)
    mixed = [" ".join(random.permutation(text.split())) for text in texts]
    scorer = scorer_module.load()
    for own, other in zip(*(scorer.nll(found)[0] for found in (texts, mixed)), strict=True):
        assert own < other - 10
