"""The product lists, and that the command measures."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.products import Product, decode_products, denoise_products, runner
from elf_engine.backends import NAMES
from elf_engine.config import NetworkSpec


@pytest.mark.parametrize(
    ("batch", "length", "gflop"), [(1, 1024, 218), (1, 128, 25), (8, 128, 198)]
)
def test_size_b_takes_the_published_work(batch: int, length: int, gflop: int) -> None:
    found = sum(p.flop for p in denoise_products(NetworkSpec(), batch, length)) / 1e9
    assert found == pytest.approx(gflop, rel=0.03)


def test_decoding_ends_in_the_vocabulary() -> None:
    spec = NetworkSpec(vocab=71)
    trunk = denoise_products(spec, 2, 8)[:-1]
    *same, head, unembed = decode_products(spec, 2, 8)
    assert same == trunk
    assert (head.columns, unembed.columns) == (spec.embedding_dim, 71)


def test_flop_of_a_product() -> None:
    assert Product(0, 2, 3, 5).flop == 60
    assert Product(7, 2, 3, 5).flop == 420


@pytest.mark.parametrize("library", NAMES)
def test_products_run(library: str) -> None:
    runner(library, [Product(0, 2, 3, 5), Product(4, 2, 3, 2)])()


def test_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--backend", "torch"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| torch")]
    ratios = [float(row.split("|")[7]) for row in rows]
    assert len(ratios) >= 2
    assert np.all(np.array(ratios) > 0)
