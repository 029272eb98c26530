"""Sampling runs: resumed, sharded, refused, and equal to what the editors give."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

import editors
from app.evaluation import data, generate
from app.evaluation.generate import Job
from app.evaluation.sampling import run_many
from editors.request import EditRequest
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from elf_engine.pipeline import Engine
from tests.evaluation.common import ManyFake, read_jsonl, write_jsonl
from tests.fakes import tiny_model_dir
from training import corpus as training_corpus

Command = Callable[..., Result]
ROOT = Path(__file__).parents[2]


@given(st.text())
def test_the_split_is_the_one_that_training_keeps_to(key: str) -> None:
    key = key.encode("utf-8", "replace").decode("utf-8")
    assert data.split_of(key) == training_corpus.split_of(key)


@pytest.mark.parametrize("task", data.TASKS)
def test_a_smaller_limit_gives_the_first_inputs(task: str, corpus: Path) -> None:
    few, many = (data.items(task, "test", n, 3, corpus) for n in (4, 9))
    assert few == many[:4]
    assert len({item.id for item in many}) == 9
    if task != "unconditional":
        assert data.items(task, "test", 9, 4, corpus) != many
        held_out = {item.id for item in data.items(task, "validation", 9, 3, corpus)}
        assert not held_out & {item.id for item in many}


def test_infills_mask_one_to_eight_words_inside_their_text(corpus: Path) -> None:
    found = data.items("infill", "test", 16, 0, corpus)
    for k, item in enumerate(found):
        start, stop = item.spans[0]
        assert len(item.text[start:stop].split()) == k % 8 + 1 == int(item.group)
        assert item.text[:start].endswith(" ")
        assert item.text[stop:].startswith(" ")


def test_training_texts_hold_nothing_held_out(corpus: Path) -> None:
    training = set(data.training_texts(corpus))
    tasks = ("translate", "modernise", "prefix")
    held_out = {i.reference for t in tasks for i in data.items(t, "test", 99, 0, corpus)}
    assert len(training) > 1000
    assert len(list(data.training_texts(corpus, 50))) == 50
    assert not training & held_out


@pytest.mark.parametrize("task", ["translate", "infill", "rewrite", "draft"])
def test_many_at_once_are_each_as_alone(task: str, tmp_path: Path) -> None:
    engine = Engine.load(tiny_model_dir(tmp_path), "torch")
    texts = ["The old house.", "A dog [[2]] here.", "x", "It rains. It snows, and more than that."]
    texts = [t if task == "infill" else t.replace("[[2]]", "is") for t in texts]
    texts = [t if "[[" in t or task != "infill" else f"{t} [[1-3]]" for t in texts]
    requests = [
        EditRequest(task, text, first=k, settings=SampleSpec(steps=3, seed=k))
        for k, text in enumerate(texts)
    ]
    together = run_many(engine, requests)
    alone = [editors.edit(engine, request)[0] for request in requests]
    assert [t.text for t in together] == [a.text for a in alone]
    assert all(t.seconds > 0 for t in together)


def test_a_broken_run_and_a_bad_request_are_told_in_their_rows(
    corpus: Path, tmp_path: Path
) -> None:
    engine = ManyFake(broken=frozenset({1}))
    job = Job("unconditional", limit=3, settings={"steps": 2})
    generate.generate(job, engine, corpus, tmp_path / "a.jsonl")
    rows = read_jsonl(tmp_path / "a.jsonl")
    assert [bool(row.get("error")) for row in rows] == [False, True, False]
    assert rows[1]["generated"] == ""


def test_rows_say_what_makes_them_again(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    more = ("--set", "steps=3", "--set", "guidance=2", "--seed", 5, "--data", corpus, "-o", out)
    assert elf_eval("generate", "--task", "translate", "-n", 4, *more).exit_code == 0
    for row in read_jsonl(out):
        assert (row["settings"]["steps"], row["settings"]["guidance"]) == (3, 2.0)
        spec = SampleSpec(**row["settings"])
        request = EditRequest("translate", row["input"], first=row["sample"], settings=spec)
        assert editors.edit(engine, request)[0].text == row["generated"]
        assert row["seed"] == spec.seed
        assert row["seconds"] >= 0
    assert len({row["seed"] for row in read_jsonl(out)}) == 4


_KILLED = """
import os, signal, sys
from pathlib import Path
from app.evaluation import generate
from tests.evaluation.common import ManyFake
generate._CHUNK = 3
def told(done, total):
    if done >= 6:
        os.write(1, str(done).encode())
        with open(sys.argv[2], "ab", buffering=0) as file:
            file.write(b'{"id": "torn')
        os.kill(os.getpid(), signal.SIGKILL)
job = generate.Job("translate", limit=10, settings={"steps": 2})
generate.generate(job, ManyFake(), Path(sys.argv[1]), Path(sys.argv[2]), told=told)
"""


def test_a_killed_run_goes_on_and_never_doubles(corpus: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    ran = subprocess.run(
        [sys.executable, "-c", _KILLED, str(corpus), str(out)], cwd=ROOT, capture_output=True
    )
    assert ran.returncode == -signal.SIGKILL
    assert ran.stdout == b"6"
    job = Job("translate", limit=10, settings={"steps": 2})
    assert generate.generate(job, ManyFake(), corpus, out) == 4
    assert generate.generate(job, ManyFake(), corpus, out) == 0
    generate.generate(job, ManyFake(), corpus, whole)
    assert _texts(out) == _texts(whole)
    # More of the same is a continuation.
    assert (
        generate.generate(
            Job("translate", limit=12, settings={"steps": 2}), ManyFake(), corpus, out
        )
        == 2
    )


def _texts(*files: Path) -> list[tuple[str, str]]:
    return sorted((row["id"], row["generated"]) for file in files for row in read_jsonl(file))


def test_shards_together_are_the_whole(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    more = ("--task", "prefix", "-n", 7, "--data", corpus, "-o")
    assert elf_eval("generate", *more, tmp_path / "all.jsonl").exit_code == 0
    for k in range(3):
        assert elf_eval("generate", *more, tmp_path / "s.jsonl", "--shard", f"{k}/3").exit_code == 0
    parts = [tmp_path / f"s.{k}of3.jsonl" for k in range(3)]
    assert _texts(*parts) == _texts(tmp_path / "all.jsonl")
    generated = [argument for part in parts for argument in ("-g", part)]
    scored = elf_eval("score", *generated, "--metrics", "bleu", "--json")
    assert '"samples": 7' in scored.stdout


@pytest.mark.parametrize(
    "change", [("--set", "steps=5"), ("--seed", 1), ("--split", "test"), ("--task", "modernise")]
)
def test_a_file_of_other_settings_is_refused(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path, change: tuple[Any, ...]
) -> None:
    same = (
        "generate",
        "--task",
        "translate",
        "-n",
        2,
        "--data",
        corpus,
        "-o",
        tmp_path / "a.jsonl",
    )
    assert elf_eval(*same).exit_code == 0
    before = (tmp_path / "a.jsonl").read_bytes()
    refused = elf_eval(*same, *change)
    assert refused.exit_code == 2
    assert "another model, input or settings" in refused.stderr
    assert (tmp_path / "a.jsonl").read_bytes() == before


def test_two_processes_do_not_write_one_file(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    job = Job("unconditional", limit=1)
    with out.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ElfError, match="another process"):
            generate.generate(job, ManyFake(), corpus, out)
    assert generate.generate(job, ManyFake(), corpus, out) == 1


def test_a_grid_is_a_folder_and_yaml_says_the_same(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    axes = ("--grid", "steps=1,2", "--grid", "gamma=0,1.5")
    more = ("--task", "unconditional", "-n", 2, "--data", corpus)
    assert elf_eval("generate", *more, *axes, "-o", tmp_path / "a").exit_code == 0
    (tmp_path / "c.yml").write_text(
        "task: unconditional\nlimit: 2\ngrid: {steps: [1, 2], gamma: [0, 1.5]}\n"
    )
    config = ("--config", tmp_path / "c.yml", "--data", corpus, "-o", tmp_path / "b")
    assert elf_eval("generate", *config).exit_code == 0
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(files) == 4
    assert "steps=2,gamma=1.5.jsonl" in files
    for name in files:
        assert _texts(tmp_path / "a" / name) == _texts(tmp_path / "b" / name)


BAD: list[tuple[tuple[Any, ...], str]] = [
    ((), "name a task"),
    (("--task", "sing"), "task 'sing' is unknown"),
    (("--protocol", "owt"), "protocol 'owt' is unknown"),
    (("--protocol", "de-en", "--task", "infill"), "is for translate"),
    (("--task", "prefix", "--set", "stepz=3"), "did you mean 'steps'"),
    (("--task", "prefix", "--set", "steps=0"), "outside 1 to 1000"),
    (("--task", "prefix", "--set", "steps=1,2"), "use --grid"),
    (("--task", "prefix", "--set", "steps"), "not NAME=VALUE"),
    (("--task", "prefix", "--set", "seed=3"), "--seed"),
    (("--task", "rewrite", "--set", "strength=2"), "outside 0 to 1"),
    (("--task", "prefix", "--grid", "steps=1,0"), "outside 1 to 1000"),
    (("--task", "prefix", "--shard", "2/2"), "not K/N"),
    (("--task", "prefix", "--inputs", "nothing.jsonl"), "no file"),
    (("--task", "prefix", "--system", "parrot"), "system 'parrot' is unknown"),
    (("--task", "infill", "--system", "copy"), "no source to copy"),
    (("--task", "prefix", "--data", "nowhere"), "point --data"),
    (("--task", "prefix", "--devices", "2", "--backend", "torch"), "--backend jax"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message for _, message in BAD])
def test_mistakes_are_one_line(
    engine: ManyFake,
    elf_eval: Command,
    corpus: Path,
    tmp_path: Path,
    arguments: tuple[Any, ...],
    message: str,
) -> None:
    given = () if "--data" in arguments else ("--data", corpus)
    result = elf_eval("generate", *arguments, *given, "-o", tmp_path / "a.jsonl")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


def test_inputs_of_a_file(
    engine: ManyFake, elf_eval: Command, corpus: Path, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [{"id": 1, "input": "Ein Haus.", "output": "A house."}]
    rows += [{"id": "b", "input": "Ein Hund."}]
    inputs = write_jsonl(tmp_path / "in.jsonl", rows)
    more = ("--task", "translate", "--inputs", inputs, "-o", tmp_path / "a.jsonl")
    assert elf_eval("generate", *more).exit_code == 0
    assert [(row["id"], row["input"]) for row in read_jsonl(tmp_path / "a.jsonl")] == [
        ("1", "Ein Haus."),
        ("b", "Ein Hund."),
    ]
    write_jsonl(inputs, [*rows, {"id": "1", "input": "Zwei."}])
    assert "'1' is doubled" in elf_eval("generate", *more).stderr


def test_baselines_without_a_model(elf_eval: Command, corpus: Path, tmp_path: Path) -> None:
    for system in ("copy", "unigram"):
        more = ("--task", "modernise", "-n", 3, "--data", corpus, "--system", system)
        assert elf_eval("generate", *more, "-o", tmp_path / f"{system}.jsonl").exit_code == 0
    copies, drawn = (read_jsonl(tmp_path / f"{s}.jsonl") for s in ("copy", "unigram"))
    assert all(row["generated"] == row["input"] for row in copies)
    assert all(len(r["generated"].split()) == len(r["reference"].split()) for r in drawn)


_DEVICES = """
import sys
from pathlib import Path
from app.evaluation.devices import generate_on_devices
from app.evaluation.generate import Job
import jax
assert len(jax.devices()) == 2
job = Job("unconditional", sys.argv[1], limit=3, settings={"steps": 1}, backend="jax")
print(generate_on_devices(job, Path("."), Path(sys.argv[2]), (0, 1), 2))
"""


def test_jax_devices_share_the_samples(tmp_path: Path) -> None:
    model = tiny_model_dir(tmp_path)
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    ran = subprocess.run(
        [sys.executable, "-c", _DEVICES, str(model), str(tmp_path / "a.jsonl")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr
    ids = [[r["id"] for r in read_jsonl(tmp_path / f"a.{k}of2.jsonl")] for k in (0, 1)]
    assert ids == [["0", "2"], ["1"]]
