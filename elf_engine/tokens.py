"""Text to token ids and back.

The bundled tokenizer is lossless: `decode(encode(s)) == s` for every valid string. SentencePiece
alone is not (it writes a space as U+2581 and cannot tell the two apart), so a literal U+2581 is
encoded by its bytes here and pieces are joined here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from elf_engine.config import TokenizerSpec
from elf_engine.errors import ElfError

# Control tokens of the bundled tokenizer in order of their ids. They are never made from text.
CONTROL = (
    "<pad>",
    "</s>",
    "<unk>",
    "<mask>",
    "<sep>",
    "<draft>",
    "<infill>",
    "<translate>",
    "<summarise>",
    "<modernise>",
    *(f"<reserved_{i}>" for i in range(6)),
)
MASK_ID = CONTROL.index("<mask>")
SEP_ID = CONTROL.index("<sep>")

# SentencePiece's sign for a space.
SPACE = "\u2581"
# Characters SentencePiece treats specially; they go in by their bytes.
_BY_BYTES = re.compile(f"([{SPACE}\0]+)")


@runtime_checkable
class Tokenizer(Protocol):
    """What the engine and the editors ask of a tokenizer."""

    vocab_size: int
    pad_id: int
    eos_id: int

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, no control tokens. Raises ElfError for a lone surrogate."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`; control tokens give nothing, broken UTF-8 gives U+FFFD."""
        ...


class SentencePieceTokenizer:
    """A SentencePiece model with byte fallback, read from `file`. Raises ElfError when the file
    is no such model."""

    def __init__(self, file: Path, pad_id: int = 0, eos_id: int = 1) -> None:
        from sentencepiece import SentencePieceProcessor

        if not file.is_file():
            raise ElfError(f"no tokenizer file '{file}'; the model directory is incomplete")
        try:
            model = SentencePieceProcessor(model_proto=file.read_bytes())
        except RuntimeError as e:
            raise ElfError(f"'{file}' is not a SentencePiece model; restore the file") from e
        self.vocab_size: int = model.get_piece_size()
        self.pad_id = pad_id
        self.eos_id = eos_id
        self._model = model
        self._bytes_of: list[bytes] = [self._piece_bytes(i) for i in range(self.vocab_size)]
        self._byte_ids = {
            self._bytes_of[i][0]: i for i in range(self.vocab_size) if model.is_byte(i)
        }
        if len(self._byte_ids) != 256:
            raise ElfError(f"'{file}' has no byte pieces; train it with byte fallback")

    def _piece_bytes(self, i: int) -> bytes:
        model = self._model
        if model.is_control(i) or model.is_unknown(i):
            return b""
        piece: str = model.id_to_piece(i)
        if model.is_byte(i):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(SPACE, " ").encode("utf-8")

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        _check_text(text)
        ids: list[int] = []
        for i, part in enumerate(_BY_BYTES.split(text)):
            if i % 2:
                ids += [self._byte_ids[b] for b in part.encode("utf-8")]
            elif part:
                ids += self._model.encode(part)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokenizer.decode`. Ids outside the vocabulary give nothing."""
        size = self.vocab_size
        joined = b"".join(self._bytes_of[i] for i in ids if 0 <= i < size)
        return joined.decode("utf-8", errors="replace")


class HuggingFaceTokenizer:
    """A transformers tokenizer in `directory` (published models). Not lossless: T5 normalises."""

    def __init__(self, directory: Path, pad_id: int, eos_id: int) -> None:
        try:
            from transformers import AutoTokenizer
        except ImportError as e:
            raise ElfError(
                "this model's tokenizer needs transformers; install elf-studio[torch]"
            ) from e
        try:
            model: Any = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
        except (OSError, ValueError) as e:
            raise ElfError(
                f"no usable tokenizer in '{directory}'; put the model's tokenizer files there"
            ) from e
        self._model = model
        self.vocab_size = len(model)
        self.pad_id = pad_id
        self.eos_id = eos_id

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        _check_text(text)
        ids: list[int] = self._model.encode(text, add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokenizer.decode`."""
        kept = [int(i) for i in ids if 0 <= i < self.vocab_size]
        text: str = self._model.decode(kept, skip_special_tokens=True)
        return text


class BytesTokenizer:
    """The control tokens, then one token per byte: a tokenizer without a file, for tiny models."""

    vocab_size = len(CONTROL) + 256

    def __init__(self, pad_id: int = 0, eos_id: int = 1) -> None:
        self.pad_id = pad_id
        self.eos_id = eos_id

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        _check_text(text)
        return [len(CONTROL) + byte for byte in text.encode("utf-8")]

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokenizer.decode`. Ids outside the vocabulary give nothing."""
        kept = bytes(i - len(CONTROL) for i in ids if len(CONTROL) <= i < self.vocab_size)
        return kept.decode("utf-8", errors="replace")


def load_tokenizer(spec: TokenizerSpec, directory: Path) -> Tokenizer:
    """The tokenizer of a model directory. Raises ElfError for an unknown kind or a bad file."""
    if spec.kind == "sentencepiece":
        return SentencePieceTokenizer(directory / spec.file, spec.pad_id, spec.eos_id)
    if spec.kind == "huggingface":
        where = directory / spec.file
        where = where if where.is_dir() else directory
        return HuggingFaceTokenizer(where, spec.pad_id, spec.eos_id)
    if spec.kind == "bytes":
        return BytesTokenizer(spec.pad_id, spec.eos_id)
    if spec.kind in _PLUGGED:
        return _PLUGGED[spec.kind](spec, directory)
    raise ElfError(
        f"tokenizer kind '{spec.kind}' is unknown; use sentencepiece, huggingface or bytes, or "
        "register it with elf_engine.tokens.register"
    )


MakeTokenizer = Callable[[TokenizerSpec, Path], Tokenizer]
_PLUGGED: dict[str, MakeTokenizer] = {}


def register(kind: str, make: MakeTokenizer) -> None:
    """Make tokenizer `kind` available; `make(spec, model directory)` gives the tokenizer."""
    _PLUGGED[kind] = make


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise ElfError(
            f"the text has a lone surrogate (U+{ord(text[e.start]):04X}) at {e.start}; remove it"
        ) from e
