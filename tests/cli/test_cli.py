"""The command line on a fake engine: input, output and history."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from app import cli_edit
from app.cli import cli
from elf_engine.errors import ElfError
from tests.cli.common import Elf, lines
from tests.fakes import FakeEngine


def test_text_goes_to_stdout_alone(elf: Elf) -> None:
    result = elf("infill", "A [[2]] house.")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "A big red house.\n", "")


def test_warnings_go_to_stderr(elf: Elf) -> None:
    result = elf("infill", "A [[5]] house.")
    assert result.stdout == "A big red. big red house.\n"
    said = "gap 1: the model would have ended it after 2 of the 5 tokens asked for; "
    assert result.stderr == f"elf: {said}the others are its next best\n"


def test_json_has_one_object_a_line(elf: Elf) -> None:
    result = elf("infill", "A [[5]] house.", "--count", "3", "--seed", "7", "--json", "--repeats")
    found = lines(result)
    assert [line["index"] for line in found] == [0, 1, 2]
    keys = {"text", "seed", "index", "model", "backend", "settings", "seconds", "warnings", "id"}
    assert set(found[0]) == keys | {"model_hash", "changes"}
    assert (found[0]["seed"], found[0]["model"], found[0]["backend"]) == (7, "tiny", "fake")
    assert found[0]["warnings"]
    assert result.stderr == ""


def test_unset_options_are_the_models_own_and_given_ones_win(elf: Elf) -> None:
    args = ["--steps", "3", "--sampler", "ode", "--gamma", "2", "--guidance", "4"]
    args += ["--condition-guidance", "5", "--grid", "quantile"]
    (line,) = lines(elf("infill", "A [[2]]", "--json", *args))
    settings = {"steps": 3, "sampler": "ode", "gamma": 2.0, "guidance": 4.0}
    assert line["settings"].items() >= settings.items()
    assert (line["settings"]["condition_guidance"], line["settings"]["grid"]) == (5.0, "quantile")
    (line,) = lines(elf("infill", "A [[2]]", "--json"))
    assert line["settings"]["steps"] == 4


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["draft", "The house "], "The house big red"),
        (["draft"], "big red"),
        (["infill", "A [[1-4]] house"], "A big red house"),
        (["rewrite", "A house", "--span", "2:7"], "A big red"),
        (["rewrite", "A house", "--strength", "0"], "A house"),
        (["translate", "Ein Haus."], "big red"),
        (["summarise", "A house."], "big red"),
        (["modernise", "A house."], "big red"),
    ],
)
def test_every_editor(elf: Elf, args: list[str], text: str) -> None:
    result = elf(*args)
    assert (result.exit_code, result.stdout) == (0, text + "\n")


def test_candidates_are_apart(elf: Elf) -> None:
    result = elf("draft", "A", "--count", "2", "--repeats")
    assert result.stdout == "A big red\n\nA big red\n"


def test_length_is_in_tokens(elf: Elf) -> None:
    assert elf("draft", "A", "--length", "1").stdout == "A big\n"


def test_file_and_stdin_keep_every_byte(elf: Elf, tmp_path: Path) -> None:
    data = "\ufeffA\t[[2]]\r\ne\u0301 👩‍👩‍👧\r\n".encode()
    expected = data.replace(b"[[2]]", b"big red")
    file = tmp_path / "text.txt"
    file.write_bytes(data)
    assert elf("infill", "--file", str(file)).stdout_bytes == expected
    assert elf("infill", "--file", "-", stdin=data).stdout_bytes == expected
    assert elf("infill", stdin=data).stdout_bytes == expected
    assert elf("infill", "-", stdin=data).stdout_bytes == expected


def test_results_are_in_the_history(elf: Elf) -> None:
    (line,) = lines(elf("infill", "A [[2]] house", "--json"))
    listed = elf("history", "list")
    assert line["id"] in listed.stdout
    assert "A big red house" in listed.stdout
    shown = elf("history", "show", line["id"])
    assert "A [[2]] house" in shown.stdout
    assert f"{'backend':<13} fake\n" in shown.stdout
    (stored,) = lines(elf("history", "show", line["id"], "--json"))
    assert (stored["output"], stored["editor"]) == ("A big red house", "infill")
    assert stored["request"]["settings"]["steps"] == 4
    assert lines(elf("history", "list", "--json", "--editor", "draft")) == []


def test_no_history_saves_nothing(elf: Elf) -> None:
    (line,) = lines(elf("infill", "A [[2]] house", "--json", "--no-history"))
    assert "id" not in line
    assert elf("history", "list").stdout == ""


def test_a_history_that_cannot_be_written_costs_a_warning(
    elf: Elf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a directory should be")
    monkeypatch.setenv("ELF_HOME", str(blocked))
    result = elf("infill", "A [[2]] house")
    assert (result.exit_code, result.stdout) == (0, "A big red house\n")
    assert result.stderr.startswith("elf: not saved: history ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(elf: Elf, shell: str) -> None:
    result = elf("completion", shell)
    assert result.exit_code == 0
    assert "_ELF_COMPLETE" in result.stdout


def test_completion_offers_commands_and_options(elf: Elf) -> None:
    def offered(words: str, at: int) -> str:
        env = {"_ELF_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        return CliRunner().invoke(cli, [], env=env, prog_name="elf").stdout

    assert "plain,infill" in offered("elf in", 1)
    assert "plain,--sampler" in offered("elf draft --sa", 2)
    assert "plain,list" in offered("elf models l", 2)


def test_version_names_what_it_runs_on(elf: Elf) -> None:
    words = elf("version").stdout.split()
    assert {"elf-studio", "torch", "jax", "python"} <= set(words)


def test_serve_passes_what_it_was_given(elf: Elf, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    page = ModuleType("app.server")
    page.serve = lambda **given: calls.append(given)  # type: ignore[attr-defined]
    page.Door = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app.server", page)
    monkeypatch.setenv("ELF_PASSWORD", "a secret")
    options = ["--host", "::1", "--port", "99", "--model", "mine", "--backend", "jax"]
    door = ["--proxy-user-header", "X-User", "--proxy", "10.0.0.2"]
    assert elf("serve", *options, "--no-browser", *door).exit_code == 0
    expected = {"host": "::1", "port": 99, "model": "mine", "backend": "jax"}
    who = {"accounts": None, "password": "a secret"}
    proxy = {"proxy_header": "X-User", "proxies": ("10.0.0.2",)}
    assert calls == [{**expected, "open_browser": False, "door": {**who, **proxy}}]


def test_without_any_stdin_a_draft_starts_from_nothing(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert cli_edit.read_text(None, None, needed=False) == ""
    with pytest.raises(ElfError, match="no text"):
        cli_edit.read_text(None, None, needed=True)
