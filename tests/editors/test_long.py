"""Long texts and many candidates: what is known is given early, and nothing else changes."""

from __future__ import annotations

import pytest

from editors import EditResult, Progress, edit, run, runner
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from tests.editors.common import ids, request
from tests.fakes import FakeEngine

# Sentences of several padded lengths, so that their order in the text is not that of the groups.
TEXT = "\r\n\r\n".join(f"Ein Haus. {'Das alte Haus steht da. ' * (n % 3)}" for n in range(150))


@pytest.mark.parametrize("editor", ["translate", "modernise", "rewrite", "infill"])
def test_a_long_text_settles_from_its_beginning(editor: str) -> None:
    text = "A [[1]] house.\n" * 4000 if editor == "infill" else TEXT
    items = list(run(FakeEngine(), request(editor, text, distinct=True)))
    result = items[-1]
    assert isinstance(result, EditResult)
    parts = [item.settled for item in items if isinstance(item, Progress) and item.settled]
    assert parts
    assert result.text.startswith("".join(parts))
    assert len("".join(parts)) > len(result.text) / 4
    assert len(parts) < 40


def test_the_order_of_work_changes_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for window, rows in ((128, 16), (10**9, 3), (1, 1)):
        monkeypatch.setattr(runner, "_WINDOW", window)
        monkeypatch.setattr(runner, "_ROWS", rows)
        texts.append([r.text for r in edit(FakeEngine(), request("translate", TEXT, count=2))])
    assert texts[0] == texts[1] == texts[2]


def test_short_texts_and_several_candidates_do_not_settle_early() -> None:
    for asked in (request("translate", "Ein Haus."), request("translate", TEXT, count=2)):
        items = run(FakeEngine(), asked)
        assert not any(item.settled for item in items if isinstance(item, Progress))


def test_many_candidates_come_one_by_one() -> None:
    items = list(run(FakeEngine(), request("draft", "A", count=40)))
    kinds = [isinstance(item, EditResult) for item in items]
    assert kinds.index(True) < len(kinds) // 2
    found = [item for item in items if isinstance(item, EditResult)]
    assert [result.index for result in found] == list(range(40))
    assert not isinstance(items[-2], EditResult) or isinstance(items[-1], EditResult)


def test_the_last_result_tells_of_candidates_that_came_to_nothing() -> None:
    engine = FakeEngine(broken=frozenset(range(32, 40)))
    found = edit(engine, request("draft", "A", count=40, settings=SampleSpec(steps=4)))
    assert [result.index for result in found] == list(range(32))
    assert sum("was dropped" in warning for warning in found[-1].warnings) == 8


def test_what_was_given_is_not_replaced_by_another_candidate() -> None:
    class Late(FakeEngine):
        """Breaks down in its twelfth group."""

        def batch(self, rows):  # type: ignore[no-untyped-def]
            self.broken = frozenset({0} if len(self.calls) == 11 else {})
            return super().batch(rows)

    seen = ""
    items = run(Late(), request("translate", TEXT, distinct=True))
    with pytest.raises(ElfError, match="stopped being finite at step 2"):  # noqa: PT012
        for item in items:
            seen += item.settled if isinstance(item, Progress) else "no result may come"
    assert seen
    assert "no result" not in seen


def test_one_row_of_many_is_no_reason_to_run_all_again() -> None:
    engine = FakeEngine(answer=())
    edit(engine, request("rewrite", TEXT, distinct=True))
    rows = sum(map(len, engine.calls))
    engine.calls.clear()
    edit(engine, request("rewrite", TEXT))
    assert rows == sum(map(len, engine.calls))


def test_a_long_trajectory_is_given_by_parts_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(answer=ids(" big"))
    (result,) = edit(engine, request("translate", TEXT, texts_every_step=True))
    assert len(result.trajectory) == len(engine.calls)
    assert result.trajectory[-1] == result.text
    monkeypatch.setattr(runner, "_KEPT", 3 * len(TEXT))
    engine.calls.clear()
    (result,) = edit(engine, request("translate", TEXT, texts_every_step=True))
    assert 0 < len(result.trajectory) < len(engine.calls)
    assert any("texts per step" in warning for warning in result.warnings)
