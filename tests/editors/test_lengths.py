"""A length that is asked for is written; the fake engine would end where it likes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editors import edit, settings
from editors.window import tokens_up_to
from elf_engine.layout import Free, build_row
from elf_engine.pipeline import Engine
from tests.editors.common import ids, one, request
from tests.fakes import FakeEngine, WordTokenizer, tiny_model_dir

WORD = st.sampled_from([" big", " red", " old", " hill"])


def tokens(text: str) -> int:
    return tokens_up_to(WordTokenizer(), text, 99)


@given(st.integers(1, 20), st.lists(WORD, max_size=24))
def test_an_exact_gap_is_exact(size: int, answer: list[str]) -> None:
    engine = FakeEngine(answer=ids(*answer))
    result = one(engine, "infill", f"A.[[{size}]].")
    assert tokens(result.changes[0].after) == size
    forced = any("next best" in warning for warning in result.warnings)
    assert forced == (len(answer) < size)


@given(st.integers(1, 9), st.integers(0, 9), st.lists(WORD, max_size=24))
def test_a_range_is_kept(low: int, more: int, answer: list[str]) -> None:
    result = one(FakeEngine(answer=ids(*answer)), "infill", f"A.[[{low}-{low + more}]].")
    assert tokens(result.changes[0].after) == min(max(low, len(answer)), low + more)


@given(st.integers(1, 30), st.lists(WORD, max_size=40))
def test_a_draft_is_as_long_as_asked(length: int, answer: list[str]) -> None:
    engine = FakeEngine(answer=ids(*answer))
    assert tokens(one(engine, "draft", "A.", length=length).changes[0].after) == length


def test_every_gap_of_one_row_has_its_own_length() -> None:
    result = one(FakeEngine(answer=ids(" big")), "infill", "A.[[3]].[[1]].[[2-4]].[[]].")
    assert [tokens(change.after) for change in result.changes] == [3, 1, 2, 1]


def test_a_candidate_that_ends_by_itself_is_preferred() -> None:
    class Short(FakeEngine):
        """Ends at once in the first sample."""

        def _fill(self, batch, b, spec, sample):  # type: ignore[no-untyped-def]
            filled = super()._fill(batch, b, spec, sample)
            return filled if sample else [1 if i > 272 else i for i in filled]

    (result,) = edit(Short(), request("infill", "A.[[3]].", distinct=True))
    assert (result.index, result.warnings) == (1, ())


def test_tokens_that_read_back_as_others_are_told() -> None:
    h, i = WordTokenizer().encode("hi")
    split = FakeEngine(answer=[*WordTokenizer().encode("."), *WordTokenizer().encode(" "), h])
    assert one(split, "infill", "A.[[3]]").warnings == ()
    # " the" in two tokens, which is one of its own.
    split = FakeEngine(answer=WordTokenizer().encode(" t") + WordTokenizer().encode("he"))
    (warning,) = one(split, "infill", "A.[[4]].").warnings
    assert "its 4 tokens are 1 when the text is read again" in warning
    assert i != h


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_forced_tokens_are_the_best_that_stand_for_text(
    backend: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    engine = Engine.load(tiny_model_dir(tmp_path_factory.mktemp("m")), backend=backend)
    layout, tokenizer = engine.config.layout, engine.tokenizer
    row = build_row(layout, tokenizer.eos_id, "draft", [Free(30)])
    batch = engine.batch([row, row, row])
    spec = settings(engine, "draft", steps=2)
    *_, step = engine.sample(batch, spec, [0, 1, 2])
    own = step.ids()
    silent = np.asarray([not tokenizer.decode([i]) for i in range(engine.config.network.vocab)])
    at = np.zeros(own.shape, bool)
    at[:, 1:20] = True
    forced = step.ids(at)
    assert not silent[forced[at]].any()
    assert (forced == own)[~(at & silent[own])].all()


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("size", [1, 7])
def test_the_bundled_model_fills_an_exact_gap(backend: str, size: int) -> None:
    engine = Engine.load("starter", backend=backend)
    spec = settings(engine, "infill", steps=4)
    asked = request("infill", f"The old man [[{size}]] by the fire.", settings=spec, count=4)
    for result in edit(engine, asked):
        found = len(engine.tokenizer.encode(" " + result.changes[0].after))
        assert found == size or any("read again" in warning for warning in result.warnings)
