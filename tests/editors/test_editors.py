"""What every editor promises, on a fake engine that writes arbitrary words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editors import EditRequest, EditResult, Progress, run
from editors.gaps import Gap, Template, escape, write_gaps
from elf_engine.config import LayoutSpec, SampleSpec
from elf_engine.errors import ElfError
from tests.editors.common import TEXT, ids, request
from tests.fakes import FakeEngine, tiny_config


def results(engine: FakeEngine, request: EditRequest) -> list[EditResult]:
    return [item for item in run(engine, request) if isinstance(item, EditResult)]


@given(st.lists(TEXT, min_size=2, max_size=4))
def test_infill_changes_nothing_outside(outside: list[str]) -> None:
    template = Template(tuple(outside), (Gap(3, 3),) * (len(outside) - 1))
    (result,) = results(FakeEngine(), request("infill", write_gaps(template)))
    # Every gap took what the text has beyond the outside; walk over it piece by piece.
    assert result.text.startswith(outside[0])
    assert result.text.endswith(outside[-1])
    position = len(outside[0])
    for text in outside[1:-1]:
        position = result.text.index(text, position) + len(text)
    assert position <= len(result.text) - len(outside[-1])


@given(TEXT, TEXT)
def test_infill_writes_the_answer_and_only_it(left: str, right: str) -> None:
    engine = FakeEngine(answer=ids(" big", " red"))
    (result,) = results(engine, request("infill", f"{escape_end(left)}[[2]]{escape(right)}"))
    assert result.text == left + big_red_after(left) + right


def big_red_after(left: str) -> str:
    return "big red" if not left or left[-1].isspace() else " big red"


def escape_end(left: str) -> str:
    return write_gaps(Template((left, ""), (Gap(),)))[:-4]


@given(TEXT)
def test_draft_keeps_its_prefix(prefix: str) -> None:
    engine = FakeEngine(answer=ids(" big", " red"))
    (result,) = results(engine, request("draft", prefix))
    assert result.text == prefix + big_red_after(prefix)


@given(TEXT)
def test_rewrite_of_strength_0_is_the_same_text(text: str) -> None:
    (result,) = results(FakeEngine(), request("rewrite", text, strength=0.0))
    assert result.text == text


@given(TEXT, st.text(alphabet="ab ", min_size=1, max_size=6), TEXT)
def test_rewrite_changes_nothing_outside_its_span(left: str, span: str, right: str) -> None:
    spans = ((len(left), len(left) + len(span)),)
    (result,) = results(FakeEngine(), request("rewrite", left + span + right, spans=spans))
    assert result.text.startswith(left)
    assert result.text.endswith(right)
    assert len(result.text) >= len(left) + len(right)


SPACE = st.text(alphabet=" \t\r\n\u2003", max_size=4)


@given(SPACE, SPACE, SPACE)
def test_translate_keeps_the_white_space_between_sentences(a: str, b: str, c: str) -> None:
    engine = FakeEngine(answer=ids(" big"))
    (result,) = results(engine, request("translate", f"{a}Ein Haus. {b}Zwei!{c}"))
    assert result.text == f"{a}big {b}big{c}"


CASES = [
    ("draft", "The house "),
    ("infill", "A [[2-6]] house [[]] on the [[3]] hill."),
    ("translate", "Das ist ein Haus. Und noch eins? " * 5),
    ("rewrite", "The big house. The old house is on a hill. A house is a house."),
    ("summarise", "The big house is on the hill. " * 9),
    ("modernise", "The big house. A house."),
]


@pytest.mark.parametrize(("editor", "text"), CASES)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**63 - 1), count=st.integers(2, 6))
def test_a_candidate_is_the_same_for_any_count(
    editor: str, text: str, seed: int, count: int
) -> None:
    spec = SampleSpec(steps=2, seed=seed)
    many = results(FakeEngine(), request(editor, text, count=count, settings=spec))
    assert [r.index for r in many] == list(range(count))
    last = results(FakeEngine(), request(editor, text, first=count - 1, settings=spec))
    one = results(FakeEngine(), request(editor, text, settings=spec))
    assert [r.text for r in one + last] == [many[0].text, many[-1].text]
    assert len({r.text for r in many}) > 1


@pytest.mark.parametrize(("editor", "text"), CASES)
def test_results_carry_what_reproduces_them(editor: str, text: str) -> None:
    spec = SampleSpec(steps=3, seed=5, guidance=2.0)
    (result,) = results(FakeEngine(), request(editor, text, settings=spec))
    assert (result.editor, result.input, result.seed, result.index) == (editor, text, 5, 0)
    assert (result.model, result.backend, result.model_hash) == ("tiny", "fake", "f" * 64)
    assert result.settings["guidance"] == 2.0
    assert result.settings["effective_steps"] in (2, 3)
    assert result.seconds >= 0


@pytest.mark.parametrize(("editor", "text"), CASES)
def test_unset_settings_are_the_models_own(editor: str, text: str) -> None:
    config = tiny_config(defaults={editor: SampleSpec(steps=5, seed=9)})
    (result,) = results(FakeEngine(config), EditRequest(editor, text))
    assert (result.settings["steps"], result.seed) == (5, 9)


def test_progress_counts_every_step_once() -> None:
    items = list(run(FakeEngine(), request("translate", "Ein Haus. " * 60)))
    steps = [item.step for item in items if isinstance(item, Progress)]
    assert steps == list(range(1, len(steps) + 1))
    assert {item.steps for item in items if isinstance(item, Progress)} == {len(steps)}
    assert len(steps) > 2


def test_texts_form_step_by_step() -> None:
    asked = request("infill", "A [[2]] house", count=2, texts_every_step=True)
    items = list(run(FakeEngine(), asked))
    progress = [item for item in items if isinstance(item, Progress)]
    final = [item for item in items if isinstance(item, EditResult)]
    assert progress[-1].texts == tuple(r.text for r in final)
    assert [len(r.trajectory) for r in final] == [2, 2]


def test_closing_stops_between_two_steps() -> None:
    engine = FakeEngine()
    items = run(engine, request("draft", settings=SampleSpec(steps=1000)))
    first = next(items)
    assert isinstance(first, Progress)
    assert first.step == 1
    items.close()  # type: ignore[attr-defined]
    assert engine.stopped


def test_a_candidate_with_nan_is_dropped_and_named() -> None:
    engine = FakeEngine(broken=frozenset({1}))
    found = results(engine, request("draft", count=3, settings=SampleSpec(steps=4)))
    assert [r.index for r in found] == [0, 2]
    assert all("candidate 1 was dropped" in r.warnings[-1] for r in found)
    assert "step 2 of 4" in found[0].warnings[-1]


def test_nothing_but_nan_is_an_error() -> None:
    engine = FakeEngine(broken=frozenset({0, 1}))
    with pytest.raises(ElfError, match="step 2 of 4"):
        results(engine, request("draft", count=2, settings=SampleSpec(steps=4)))


def test_the_model_sees_the_pieces_of_training() -> None:
    engine = FakeEngine()
    results(engine, request("infill", "A [[2]] house on [[1]] hill"))
    layout = engine.config.layout
    expected = [layout.tasks["infill"], *ids("A"), 1, 1, *ids(" house", " on"), 1, *ids(" hill")]
    assert list(engine.calls[0][0].ids) == expected


def test_gap_sizes() -> None:
    engine = FakeEngine(answer=ids(" big", " red", " old"))
    (exact,) = results(engine, request("infill", "A [[5]] house"))
    assert exact.text == "A big red old. big house"
    assert "after 3 of the 5 tokens" in exact.warnings[0]
    (ranged,) = results(engine, request("infill", "A [[2-6]] house"))
    assert (ranged.text, ranged.warnings) == ("A big red old house", ())
    (short,) = results(engine, request("infill", "A [[4-6]] house"))
    assert short.text == "A big red old. house"
    assert "after 3 of the 4 tokens" in short.warnings[0]
    (cut,) = results(engine, request("infill", "A [[2]] house"))
    assert cut.text == "A big red house"
    (auto,) = results(engine, request("infill", "A [[]] house"))
    assert (auto.text, auto.warnings) == ("A big red old house", ())


def test_an_empty_gap_keeps_both_spaces() -> None:
    (result,) = results(FakeEngine(answer=()), request("infill", "A [[]] house"))
    assert result.text == "A  house"
    assert result.warnings == ("gap 1 came back empty",)


def test_gaps_far_apart_are_filled_separately() -> None:
    middle = " house on the hill" * 40
    (result,) = results(FakeEngine(), request("infill", f"A [[3]]{middle} [[3]] hill"))
    assert middle in result.text
    assert any("2 separate" in w for w in result.warnings)
    assert any("did not see" in w for w in result.warnings)


def test_a_megabyte_is_edited_in_place() -> None:
    left, right = "The old house.\r\n" * 30_000, " on the hill. A house." * 25_000
    engine = FakeEngine(answer=ids(" big"))
    (result,) = results(engine, request("infill", f"{left}[[1]]{right}"))
    assert result.text == f"{left}big{right}"
    assert any("did not see" in w for w in result.warnings)
    assert len(engine.calls[0][0]) <= engine.max_tokens


def test_a_long_prefix_is_kept_and_the_window_told() -> None:
    prefix = "The old house. " * 500
    engine = FakeEngine(answer=ids(" big"))
    (result,) = results(engine, request("draft", prefix, length=1))
    assert result.text == f"{prefix}big"
    assert "of 7499 characters" in result.warnings[0]


def test_a_long_sentence_is_translated_in_pieces() -> None:
    engine = FakeEngine(answer=ids(" big"))
    source = "the old house, " * 40 + "the end"
    (result,) = results(engine, request("translate", source))
    assert set(result.text.split()) == {"big"}
    assert any("cut in pieces" in w for w in result.warnings)
    assert sum(map(len, engine.calls)) == len(result.text.split())


@pytest.mark.parametrize("text", ["😀", "?!", "  3 \n", "—"])
def test_translation_of_what_has_no_words(text: str) -> None:
    (result,) = results(FakeEngine(answer=ids(" big")), request("translate", text))
    assert result.text == (text.replace("3", "big"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request("paint", "a"), "editor 'paint'"),
        (request("draft", count=0), "count 0"),
        (request("draft", count=10**9), "count 1000000000"),
        (request("draft", first=-1), "first -1"),
        (request("draft", length=-1), "length -1"),
        (request("draft", length=10**9), "1 to 63"),
        (request("draft", "a", length=63), "1 to 62"),
        (request("draft", "\ud83d"), "surrogate"),
        (request("infill", "a \udc00 [[2]]"), "surrogate"),
        (request("infill", ""), "no gap"),
        (request("infill", "no gap"), "no gap"),
        (request("infill", "a [[9999]]"), r"\[\[9999\]\] is too large"),
        (request("infill", "a [[1-64]]"), "at most 63"),
        (request("translate", ""), "no text"),
        (request("translate", " \n\t"), "no text"),
        (request("summarise", "  "), "no text"),
        (request("rewrite", " \n"), "no words"),
        (request("rewrite", "😀"), "no words"),
        (request("rewrite", "a", strength=1.5), "strength 1.5"),
        (request("rewrite", "a", strength=float("nan")), "strength nan"),
        (request("rewrite", "ab", spans=((1, 1),)), "span 1:1"),
        (request("rewrite", "ab", spans=((0, 3),)), "span 0:3"),
        (request("rewrite", "abc", spans=((0, 2), (1, 3))), "span 1:3"),
        (request("rewrite", "a" * 99, spans=((0, 99),)), "smaller spans"),
        (request("rewrite", "ab", spans=((0, 1, 2),)), "spans.0.: expected 2 values"),
        (request("rewrite", "ab", spans=((0.5, 1),)), "expected int, found 0.5"),
        (request("rewrite", "ab", strength=True), "expected float, found True"),
        (request("draft", "a", length=True), "expected int, found True"),
        (request("draft", None), "expected str, found None"),
        (request("draft", count=1.5), "expected int, found 1.5"),
        (request("draft", rank="best"), "'best' is unknown"),
    ],
)
def test_bad_requests_are_refused_in_one_line(asked: EditRequest, message: str) -> None:
    engine = FakeEngine()
    with pytest.raises(ElfError, match=message) as error:
        run(engine, asked)
    assert "\n" not in str(error.value)
    assert not engine.calls


def test_a_model_without_the_task_says_what_it_can_do() -> None:
    engine = FakeEngine(tiny_config(layout=LayoutSpec(lengths=(64,), tasks={"draft": -1})))
    with pytest.raises(ElfError, match="cannot do 'translate'; it was trained for: draft"):
        run(engine, request("translate", "Haus"))


def test_attended_rows_need_no_control_tokens() -> None:
    layout = LayoutSpec(padding="attended", lengths=(), tasks={"draft": -1, "infill": -1})
    engine = FakeEngine(tiny_config(layout=layout), answer=ids(" big"))
    (result,) = results(engine, request("infill", "A [[1]] house"))
    assert result.text == "A big house"


def test_the_answer_of_a_pair_has_room_by_the_length_of_its_source() -> None:
    engine = FakeEngine(answer=())
    results(engine, request("translate", "A house on the hill"))
    layout = engine.config.layout
    source = ids("A", " house", " on", " the", " hill")
    expected = [layout.tasks["translate"], *source, layout.sep_id, *[1] * (5 + 2 + 8)]
    assert list(engine.calls[0][0].ids) == expected


def test_a_pair_of_a_model_that_attends_to_padding_fills_its_row() -> None:
    layout = LayoutSpec(padding="attended", lengths=(), tasks={"translate": -1})
    engine = FakeEngine(tiny_config(layout=layout), answer=ids(" big"))
    results(engine, request("translate", "Haus"))
    assert len(engine.calls[0][0]) == engine.max_tokens


@pytest.mark.parametrize(
    ("editor", "text"),
    [("draft", "a"), ("infill", "a [[2]]"), ("rewrite", "a"), ("translate", "a")],
)
def test_bytes_that_are_no_text_are_told(editor: str, text: str) -> None:
    (result,) = results(FakeEngine(answer=[16 + 0xC3]), request(editor, text))
    assert "\ufffd" in result.text
    assert any("bytes that are no text" in w for w in result.warnings)


def test_a_thousand_gaps() -> None:
    engine = FakeEngine(answer=ids(" big"))
    (result,) = results(engine, request("infill", "A [[1]] house.\n" * 1000))
    assert result.text == "A big house.\n" * 1000


def test_rewrite_starts_from_its_own_text_and_takes_fewer_steps() -> None:
    engine = FakeEngine()
    asked = request("rewrite", "A big house", spans=((2, 5),), settings=SampleSpec(steps=8))
    (result,) = results(engine, replace(asked, strength=0.25))
    row = engine.calls[0][0]
    start, stop = row.free[0]
    assert list(row.ids[start : start + 1]) == ids(" big")
    assert stop - start == 3
    assert result.settings["effective_steps"] == 2
    assert result.settings["strength"] == 0.25
