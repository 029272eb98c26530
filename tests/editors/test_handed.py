"""Cases people met, each with its whole kind."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editors import edit, splice
from editors.gaps import escape
from elf_engine.config import SampleSpec
from tests.editors.common import TEXT, attempt, ids, one, request, roomy
from tests.fakes import FakeEngine

WRAPPED = (
    "Wer an einem langen Abend durch die alten\nGassen der Stadt geht, der hört die Uhren\n"
    "schlagen. Niemand weiß, wer sie stellt,\nund niemand fragt danach. Nur der Wind\n"
    "kennt die Antwort.\n"
)


@pytest.mark.parametrize("editor", ["infill", "rewrite"])
@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("😀 rocket", "rocket"),
        ("😀😀 get", "get"),
        ("a\r\nb c", "b c"),
        ("Hi there \n\t  I'm good", "good"),
        ("a\nb", "\n"),
        ("a\r\nb", "\r\n"),
        ("שלום עולם", "עולם"),
        ("{curly} ${x} }{", "${x}"),
        ("  two  spaces ", "spaces"),
    ],
)
def test_a_selection_is_edited_in_place(editor: str, text: str, selected: str) -> None:
    start = text.index(selected)
    stop = start + len(selected)
    for result in edit(FakeEngine(), request(editor, text, spans=((start, stop),), count=3)):
        (change,) = result.changes
        assert (change.start, change.stop, change.before) == (start, stop, selected)
        assert result.text == text[:start] + change.after + text[stop:]


def test_infill_before_a_word() -> None:
    text = "1-${phone.number} call me"
    place = text.index("me")
    engine = FakeEngine(answer=ids(" big"))
    result = one(engine, "infill", text, spans=((place, place),))
    assert result.text == "1-${phone.number} call bigme"
    assert one(engine, "infill", "1-${phone.number} call [[1]] me").text.endswith("call big me")


@given(TEXT, TEXT)
def test_a_gap_at_the_very_start_and_the_very_end(left: str, right: str) -> None:
    text = left + right
    result = one(roomy(), "infill", text, spans=((0, 0), (len(text), len(text))), length=2)
    first, last = result.changes
    assert result.text == first.after + text + last.after
    assert not first.after.startswith(" ")


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_adjacent_gaps_are_each_filled(sizes: list[int]) -> None:
    marks = "".join(f"[[{size}]]" for size in sizes)
    result = one(FakeEngine(), "infill", f"A {marks} house")
    assert [change.before for change in result.changes] == [f"[[{size}]]" for size in sizes]
    assert result.text == "A " + "".join(change.after for change in result.changes) + " house"
    words = sum(len(re.findall(r"\w+|\.", change.after)) for change in result.changes)
    assert words == sum(sizes)


def test_adjacent_gaps_do_not_run_together() -> None:
    result = one(FakeEngine(), "infill", "A [[1]][[1]]", settings=SampleSpec(steps=2, seed=3))
    first, second = (change.after for change in result.changes)
    assert not first.startswith(" ")
    assert second.startswith((" ", "."))


@pytest.mark.parametrize("prefix", ["The house ", "The hou", "He said “", 'He said "', "(", "A\n"])
def test_a_prefix_is_kept_however_it_ends(prefix: str) -> None:
    for result in edit(FakeEngine(), request("draft", prefix, length=4, count=4)):
        (change,) = result.changes
        assert result.text == prefix + change.after
        assert not (prefix[-1].isspace() and change.after.startswith(" "))


def sources(engine: FakeEngine) -> list[str]:
    """The sources of all pair rows the model was shown."""
    rows = [row for call in engine.calls for row in call]
    return [engine.tokenizer.decode(row.ids[1 : row.free[0][0] - 1]) for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Wenn eine Zeile kein Verb\nenthält, übersetzt man sie schlecht.",
            ["Wenn eine Zeile kein Verb enthält, übersetzt man sie schlecht."],
        ),
        (
            WRAPPED,
            [
                "Wer an einem langen Abend durch die alten Gassen der Stadt geht, der hört die "
                "Uhren schlagen.",
                "Niemand weiß, wer sie stellt, und niemand fragt danach.",
                "Nur der Wind kennt die Antwort.",
            ],
        ),
        ("Haus", ["Haus"]),
        ("Titel\n\nZwei Sätze. Und noch einer.\n", ["Titel", "Zwei Sätze.", "Und noch einer."]),
    ],
)
def test_the_model_is_shown_whole_sentences(text: str, expected: list[str]) -> None:
    engine = roomy(answer=ids(" big"))
    result = one(engine, "translate", text)
    assert sorted(sources(engine)) == sorted(expected)
    assert result.text.split() == ["big"] * len(expected)
    assert result.text.endswith("\n") == text.endswith("\n")
    assert result.text.count("\n\n") == text.count("\n\n")


@pytest.mark.parametrize("engine", [FakeEngine(), roomy()], ids=["short", "long"])
def test_three_german_sentences_of_forty_words(engine: FakeEngine) -> None:
    engine.calls.clear()
    text = " ".join("Das " + "alte Haus " * 19 + "steht." for _ in range(3))
    result = one(engine, "translate", text)
    assert sorted(" ".join(sources(engine)).split()) == sorted(text.split())
    cut = any("cut in pieces" in warning for warning in result.warnings)
    assert cut == (engine.max_tokens < 512)


@given(st.lists(st.sampled_from(["Haus", "ist", "alt.", "Wer?", "\n", "\n\n", "- x"]), min_size=1))
def test_nothing_of_a_long_text_is_cut_silently(parts: list[str]) -> None:
    text = " ".join(parts)
    if not re.search(r"\w", text):
        return
    for editor in ("translate", "summarise", "modernise"):
        engine = FakeEngine()
        one(engine, editor, text)
        seen = re.findall(r"\w+", " ".join(sources(engine)))
        assert sorted(seen) == sorted(re.findall(r"\w+", text))


@given(st.floats(0.01, 1), st.integers(1, 100))
def test_strength_is_the_share_of_steps_that_are_run(strength: float, steps: int) -> None:
    engine = FakeEngine()
    spec = SampleSpec(steps=steps)
    result = one(engine, "rewrite", "A house", strength=strength, settings=spec)
    assert engine.starts[0] == pytest.approx(1 - strength, abs=1e-8)
    assert 0 <= result.settings["effective_steps"] - strength * steps < 1 + 1e-3


@pytest.mark.parametrize(
    ("strength", "steps", "run_steps"),
    [(0.02, 32, 1), (0.3, 10, 3), (0.9, 10, 9), (0.7, 10, 7), (1.0, 7, 7), (0.834, 30, 26)],
)
def test_steps_at_a_strength(strength: float, steps: int, run_steps: int) -> None:
    spec = SampleSpec(steps=steps)
    result = one(FakeEngine(), "rewrite", "A house", strength=strength, settings=spec)
    assert result.settings["effective_steps"] == run_steps


@pytest.mark.parametrize("strength", [1e-300, 1e-12, 1e-7, 2e-6, 9.9e-5])
@pytest.mark.parametrize("steps", [1, 1000])
def test_a_strength_that_leaves_no_step_is_refused(strength: float, steps: int) -> None:
    spec = SampleSpec(steps=steps)
    said = attempt(FakeEngine(), "rewrite", "A house", strength=strength, settings=spec)
    assert "it is 0 for the same text" in str(said)
    result = one(FakeEngine(), "rewrite", "A house", strength=1e-4, settings=spec)
    assert result.settings["effective_steps"] == 1


def test_near_strengths_are_different_runs() -> None:
    engine = FakeEngine()
    for strength in (0.834, 0.843):
        one(engine, "rewrite", "A", strength=strength, settings=SampleSpec(steps=30))
    assert engine.starts == [0.166, 0.157]


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize(
    ("editor", "text"),
    [("draft", "A"), ("infill", "A [[1]] house"), ("rewrite", "A house"), ("translate", "Haus")],
)
def test_results_do_not_depend_on_how_many_are_asked_for(
    editor: str, text: str, distinct: bool
) -> None:
    spec = SampleSpec(steps=2, seed=1)
    asked = request(editor, text, settings=spec, distinct=distinct, length=1 if text == "A" else 0)
    every = {n: edit(FakeEngine(), replace(asked, count=n)) for n in (1, 2, 3, 4)}
    for n, more in itertools.pairwise(every):
        assert [r.text for r in every[n]] == [r.text for r in every[more]][:n]
    for result in every[4]:
        alone = edit(FakeEngine(), replace(asked, first=result.index, count=1))
        assert [(r.text, r.index) for r in alone] == [(result.text, result.index)]


def test_equal_candidates_are_replaced_by_further_samples() -> None:
    asked = request("draft", "A", length=1, count=10)
    repeated = edit(FakeEngine(), asked)
    assert len({r.text for r in repeated}) < 10
    results = edit(FakeEngine(), replace(asked, distinct=True))
    assert len({r.text for r in results}) == len(results) > len({r.text for r in repeated})
    if len(results) < 10:
        assert any("candidates differ" in w for w in results[-1].warnings)


def test_a_candidate_of_the_wrong_length_is_replaced() -> None:
    class Short(FakeEngine):
        """Ends the gap at once in the first two samples."""

        def _fill(self, batch, b, spec, sample):  # type: ignore[no-untyped-def]
            filled = super()._fill(batch, b, spec, sample)
            return filled if sample > 1 else [1 if i > 272 else i for i in filled]

    for gap, said in (("[[]]", "came back empty"), ("[[2]]", "ended it after 0 of the 2 tokens")):
        (result,) = edit(Short(), request("infill", f"a {gap} b", distinct=True))
        assert (result.index, result.warnings) == (2, ())
        (result,) = edit(Short(), request("infill", f"a {gap} b"))
        assert result.index == 0
        assert said in result.warnings[0]


def test_a_candidate_with_nan_is_replaced() -> None:
    engine = FakeEngine(broken=frozenset({1}))
    found = edit(engine, request("draft", count=3, length=9, distinct=True))
    assert [r.index for r in found] == [0, 2, 3]
    assert "candidate 1 was dropped" in found[0].warnings[-1]


@given(TEXT)
def test_changes_make_the_text(text: str) -> None:
    for editor in ("draft", "translate", "modernise", "summarise", "rewrite"):
        result = attempt(FakeEngine(), editor, text)
        assert isinstance(result, str) or splice(text, result.changes) == result.text
    marked = escape(text) + " [[2]] x"
    assert splice(marked, (result := one(FakeEngine(), "infill", marked)).changes) == result.text


@pytest.mark.parametrize(
    ("editor", "rest"),
    [
        ("draft", {"length": 2}),
        ("infill", {"spans": ((600_000, 600_003),)}),
        ("rewrite", {"spans": ((600_000, 600_003),)}),
        ("translate", {"spans": ((600_000, 600_003),)}),
    ],
)
def test_a_megabyte_is_edited_in_place(editor: str, rest: dict[str, Any]) -> None:
    text = "The old house.\r\n" * 70_000
    result = one(FakeEngine(), editor, text, **rest)
    (change,) = result.changes
    assert result.text == text[: change.start] + change.after + text[change.stop :]
    assert len(result.text) > 1_000_000
