"""Laws of the bundled tokenizer: nothing is lost, nothing becomes a control token."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elf_engine.config import TokenizerSpec
from elf_engine.errors import ElfError
from elf_engine.tokens import CONTROL, MASK_ID, SEP_ID, SentencePieceTokenizer, load_tokenizer

DIRECTORY = Path(__file__).parents[2] / "assets" / "starter"
TOKENIZER = load_tokenizer(TokenizerSpec(), DIRECTORY)
VALID = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


@given(VALID)
@example("")
@example("a\r\nb\tc  d\n")
@example("\u2581 \u2581\u2581x")
@example("\0a\0")
@example("👩\u200d👩\u200d👧\ufe0f e\u0301")
@example("<0x41></s><unk><sep> <pad>")
@example("  leading and trailing  ")
@example("ﬁ Å ㎏ \u00a0\u3000\ufeff")
def test_decode_inverts_encode(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert all(len(CONTROL) <= i < TOKENIZER.vocab_size for i in ids)


@given(VALID, VALID)
def test_pieces_join_across_a_cut(left: str, right: str) -> None:
    joined = [*TOKENIZER.encode(left), SEP_ID, *TOKENIZER.encode(right)]
    assert TOKENIZER.decode(joined) == left + right


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d \ude00"])
def test_lone_surrogate_is_refused(text: str) -> None:
    with pytest.raises(ElfError, match="lone surrogate"):
        TOKENIZER.encode(text)


def test_broken_utf8_decodes_to_the_replacement_character() -> None:
    assert isinstance(TOKENIZER, SentencePieceTokenizer)
    euro = [TOKENIZER._byte_ids[b] for b in "€".encode()]
    assert TOKENIZER.decode(euro) == "€"
    assert TOKENIZER.decode(euro[:2]) == "\ufffd"
    assert TOKENIZER.decode([*euro[1:], *TOKENIZER.encode("a")]) == "\ufffd\ufffda"


@given(st.lists(st.integers(-5, 9000), max_size=40))
def test_any_ids_decode(ids: list[int]) -> None:
    TOKENIZER.decode(ids).encode("utf-8")


def test_control_tokens_have_their_ids_and_no_text() -> None:
    assert TOKENIZER.vocab_size == 8192
    assert (TOKENIZER.pad_id, TOKENIZER.eos_id, MASK_ID, SEP_ID) == (0, 1, 3, 4)
    assert TOKENIZER.decode(list(range(len(CONTROL)))) == ""
    names = [TOKENIZER._model.id_to_piece(i) for i in range(len(CONTROL))]  # type: ignore[attr-defined]
    assert names == list(CONTROL)


def test_bad_files_and_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ElfError, match="no tokenizer file"):
        load_tokenizer(TokenizerSpec(), tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(ElfError, match="not a SentencePiece model"):
        load_tokenizer(TokenizerSpec(), tmp_path)
    with pytest.raises(ElfError, match="kind 'bpe' is unknown"):
        load_tokenizer(TokenizerSpec(kind="bpe"), tmp_path)
    with pytest.raises(ElfError, match="no usable tokenizer"):
        load_tokenizer(TokenizerSpec(kind="huggingface"), tmp_path)
