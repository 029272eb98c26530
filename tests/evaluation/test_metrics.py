"""Laws of the scores, their intervals and tests."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from elf_engine.errors import ElfError
from elf_engine.metrics import diversity, overlap
from elf_engine.metrics.estimate import Measure, compare, estimate, mean, ratio
from elf_engine.metrics.ngram import NGram
from elf_engine.metrics.perplexity import CausalLM, counted, perplexity, with_ends
from elf_engine.tokens import BytesTokenizer

TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "house", "The", "old", "hill", "."]), max_size=7).map(" ".join),
    min_size=2,
    max_size=6,
)


def whole(measure: Measure) -> float:
    return estimate(measure, 10).value


@given(TEXTS, st.randoms())
def test_corpus_scores_are_those_of_sacrebleu(texts: list[str], random: object) -> None:
    others = texts[1:] + texts[:1]
    bleu = sacrebleu.BLEU(lowercase=True, effective_order=True).corpus_score(texts, [others])
    chrf = sacrebleu.CHRF().corpus_score(texts, [others])
    assert whole(overlap.bleu(texts, others)) == pytest.approx(bleu.score)
    assert whole(overlap.chrf(texts, others)) == pytest.approx(chrf.score)


def test_a_text_is_its_own_best_reference() -> None:
    texts = ["The old house stood on the hill.", "A dog slept in the garden today."]
    assert whole(overlap.bleu(texts, texts)) == pytest.approx(100)
    assert [whole(m) for m in overlap.rouge(texts, texts)] == pytest.approx([100] * 3)
    assert whole(overlap.exact(texts, [t.upper() for t in texts])) == 1
    assert whole(overlap.length_ratio(texts, texts)) == 1


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(3).normal(5, 2, 400)
    found = estimate(mean("m", values), 4000)
    error = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - error, abs=0.03)
    assert found.high == pytest.approx(values.mean() + error, abs=0.03)
    assert estimate(mean("m", values), 50, 1) == estimate(mean("m", values), 50, 1)
    assert estimate(mean("m", values), 50, 1) != estimate(mean("m", values), 50, 2)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9))
def test_a_constant_has_no_width_and_equals_do_not_differ(values: list[float]) -> None:
    same = estimate(mean("m", [7.0] * len(values)), 20)
    assert (same.low, same.value, same.high) == pytest.approx((7, 7, 7))
    equal = compare(mean("m", values), mean("m", values), 50)
    assert (equal.difference, equal.low, equal.high, equal.p) == (0, 0, 0, 1)


def test_the_paired_test_tells_a_shift_from_noise() -> None:
    random = np.random.default_rng(0)
    hard = random.normal(0, 10, 200)  # how hard each input is, the same for both systems
    first, second = hard + random.normal(0, 1, 200), hard + random.normal(0, 1, 200)
    assert compare(mean("m", first + 1), mean("m", second)).p < 0.01
    by_chance = [
        compare(mean("m", hard + random.normal(0, 1, 200)), mean("m", second), 200).p
        for _ in range(60)
    ]
    assert 0.2 < float(np.mean(by_chance)) < 0.8
    one, other = compare(mean("m", first), mean("m", second)), None
    other = compare(mean("m", second), mean("m", first))
    assert one.p == pytest.approx(other.p)
    assert one.difference == pytest.approx(-other.difference)


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ElfError, match="no sample"):
        estimate(mean("m", []))
    with pytest.raises(ElfError, match="equal samples"):
        compare(mean("m", [1.0]), mean("m", [1.0, 2.0]))
    assert estimate(ratio("r", [0.0], [0.0]), 10).value == 0


def test_diversity_of_texts_whose_diversity_is_known() -> None:
    assert whole(diversity.entropy([[1, 2, 3, 4]])) == pytest.approx(math.log(4))
    assert whole(diversity.entropy([[5, 5, 5], []])) == 0
    texts = ["a b c d", "e f g h"]
    assert whole(diversity.distinct(texts, 2)) == 1
    assert whole(diversity.distinct(texts * 2, 2)) == pytest.approx(0.5)
    assert whole(diversity.repetition(["a b a b a b"])) == pytest.approx(3 / 5)
    assert whole(diversity.repetition(texts)) == 0
    assert whole(diversity.self_bleu(["one two three four"] * 3)) == pytest.approx(100)
    assert whole(diversity.self_bleu(["one two three four"])) == 0


def test_copies_are_runs_of_eight_words() -> None:
    training = ["zero one two three four five six seven eight nine", "a b c d e f g h"]
    copied = "One two THREE four, five six seven eight!"
    found = diversity.copies([copied, "one two three four five six seven", "h g"], iter(training))
    assert [whole(m) for m in found] == [1, 0]
    found = diversity.copies(["a b c d e f g h", "i a b c d e f g h"], iter(training))
    assert [whole(m) for m in found] == pytest.approx([2 / 3, 1 / 2])


def test_the_first_end_counts_and_text_behind_it() -> None:
    ids = np.array([[5, 0, 6, 0, 0], [0, 5, 5, 5, 5], [5, 5, 5, 5, 5]])
    expected = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    assert counted(ids, 0).astype(int).tolist() == expected
    assert with_ends([[1, 2, 3], [4], []], 0) == [[1, 2, 3], [4, 0], [0]]


def test_perplexity_is_weighted_by_tokens() -> None:
    found = perplexity("ppl", [math.log(2) * 3, math.log(8)], [3, 1])
    assert whole(found) == pytest.approx(2 ** (6 / 4))
    assert math.isnan(whole(perplexity("ppl", [0.0], [0])))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GPT-2 of 30 words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gpt2")
    words = {"<end>": 0, "<unk>": 1, **{f"w{i}": i for i in range(2, 30)}}
    built = Tokenizer(models.WordLevel(words, "<unk>"))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<end>", unk_token="<unk>")
    fast.save_pretrained(folder)
    config = GPT2Config(
        vocab_size=30,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def test_causal_lm_scores_a_text_alike_in_any_company(gpt2: Path) -> None:
    import torch

    scorer = CausalLM(str(gpt2))
    texts = ["w3 w4 w5", "w9 w2", "w7 w7 w7 w7 w7 w8", "w5", "", "w4 <end> w5 <end> w6"]
    nll, tokens = scorer.nll(texts)
    # Every text but the longest ends in one EOS, which counts unless it has had one.
    assert tokens.tolist() == [3, 2, 5, 1, 0, 3]
    ids = torch.tensor([[3, 4, 5, 0]])
    with torch.no_grad():
        log_p = scorer._model(input_ids=ids).logits.log_softmax(-1)[0]
    expected = -sum(float(log_p[k, ids[0, k + 1]]) for k in range(3))
    assert nll[0] == pytest.approx(expected, rel=1e-5)
    again = scorer.nll([texts[2], texts[0]])
    assert again[0].tolist() == pytest.approx([nll[2], nll[0]], rel=1e-5)
    assert len(scorer.ids(["w3 " * 40])[0]) == 16


def test_a_scorer_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="no causal language model") as error:
        CausalLM(str(tmp_path), local=True)
    assert "\n" not in str(error.value)


def test_the_ngram_model_knows_what_it_read() -> None:
    texts = ["the old house", "the old hill", "the red house"] * 5
    model = NGram(texts, BytesTokenizer())
    nll, tokens = model.nll(["the old house", "euo htd eslho", ""])
    assert tokens.tolist() == [14, 14, 1]
    assert 0 < nll[0] < nll[1] / 3
    assert np.isfinite(nll).all()
    # A prediction is a distribution: the NLL of every possible single byte and the end sum to 1.
    rows = model._index.batch_get_smoothed_probs([[1], [1, 132, 120], [7, 7, 7]])
    assert [sum(row) for row in rows] == pytest.approx([1, 1, 1])
    with pytest.raises(ElfError, match="at least 1 training text"):
        NGram([], BytesTokenizer())
