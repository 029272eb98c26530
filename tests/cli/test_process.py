"""`elf` as a real process: start time, signals, pipes, and text from both backends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import tiny_model_dir

ELF = [sys.executable, "-m", "app"]
HEAVY = ("jax", "torch", "transformers", "gradio", "sqlalchemy", "flax", "numpy", "huggingface_hub")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_dir(tmp_path_factory.mktemp("models"))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "ELF_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}


def elf(env: dict[str, str], *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*ELF, *args], input=stdin, capture_output=True, env=env, timeout=120)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom app.cli import cli\n"
        "cli.main(['--help'], prog_name='elf', standalone_mode=False)\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_full_disk_is_no_defect(env: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*ELF, "models", "list"], stdout=full, stderr=subprocess.PIPE, env=env, timeout=120
        )
    assert done.returncode == 2
    said = "elf: the output cannot be written: No space left on device\n"
    assert done.stderr.decode() == said


def test_an_empty_model_name_is_refused(env: dict[str, str]) -> None:
    done = elf(env, "draft", "A", "--model", "")
    assert done.returncode == 2
    assert b"--model is empty" in done.stderr


def test_version_as_an_option(env: dict[str, str]) -> None:
    done = elf(env, "--version")
    assert done.returncode == 0
    assert done.stdout.startswith(b"elf, version ")


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_real_model_keeps_the_text_around_a_gap(
    backend: str, model: Path, env: dict[str, str]
) -> None:
    args = ["--model", str(model), "--backend", backend, "--steps", "2", "--json"]
    done = elf(env, "infill", *args, stdin="Tür\r\n[[3]] 😀\t".encode())
    assert done.returncode == 0, done.stderr.decode()
    line = json.loads(done.stdout)
    assert line["text"].startswith("Tür\r\n")
    assert line["text"].endswith(" 😀\t")
    assert (line["backend"], line["model"]) == (backend, "tiny")
    assert done.stderr == b""


def test_bad_input_of_a_process(env: dict[str, str]) -> None:
    done = elf(env, "draft", "--model", "no-such-model", stdin=b"\xff")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"offset 0" in done.stderr


def test_ctrl_c_of_a_process(env: dict[str, str]) -> None:
    code = (
        "import signal, time\nfrom app import cli, cli_edit\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "cli_edit.load_engine = lambda *_: (print('loading', flush=True), time.sleep(60))\n"
        "cli.main()"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code, "draft", "text"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"loading\n"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out, err.strip()) == (130, b"", b"")


def test_a_closed_pipe_is_quiet(env: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*ELF, "completion", "zsh"], stdout=write, stderr=subprocess.PIPE, env=env, timeout=60
    )
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == -signal.SIGPIPE


def test_streams_that_are_closed_are_no_defect(env: dict[str, str]) -> None:
    """As a daemon has them; opened files must not take their numbers."""
    command = " ".join([*ELF, "history list"])
    shut = subprocess.run(["sh", "-c", f"{command} >&- 2>&- <&-"], env=env, timeout=60)
    assert shut.returncode == 0
    told = subprocess.run(
        ["sh", "-c", f"{command} --limit 0 >&- <&-"], env=env, timeout=60, stderr=subprocess.PIPE
    )
    assert (told.returncode, told.stderr) == (2, b"elf: history: limit 0 is below 1\n")


FAKE = (
    "import signal, sys\nfrom app import cli, cli_edit\nfrom tests.fakes import FakeEngine\n"
    "class Engine(FakeEngine):\n"
    "    def batch(self, rows):\n"
    "        if len(self.calls) > 20: signal.pause()\n"
    "        return super().batch(rows)\n"
    "cli_edit.load_engine = lambda *_: Engine()\ncli.main()"
)


def test_a_long_translation_comes_as_it_is_made(env: dict[str, str]) -> None:
    text = "\n\n".join(["Ein Haus."] * 1000)
    command = [sys.executable, "-c", FAKE, "translate", text, "--no-history"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as started:
        assert started.stdout is not None
        # The engine stands still for ever after some of the rows: this is before the end.
        assert started.stdout.readline().strip()
        assert started.poll() is None
        started.kill()


def test_a_reader_that_leaves_ends_a_run_quietly(env: dict[str, str]) -> None:
    command = [sys.executable, "-c", FAKE, "draft", "A", "--json", "--no-history", "--repeats"]
    command += ["--count", "99"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=env, bufsize=0) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        assert started.stdout.read(10)
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(60) == -signal.SIGPIPE


def test_the_bar_is_drawn_on_a_terminal_only(env: dict[str, str]) -> None:
    code = (
        "from app import cli, cli_edit\nfrom tests.fakes import FakeEngine\n"
        "cli_edit.load_engine = lambda *_: FakeEngine()\ncli.main()"
    )
    command = [sys.executable, "-c", code, "draft", "A", "--json", "--no-history"]
    terminal, stderr = os.openpty()
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, env=env, timeout=60)
    os.close(stderr)
    assert b"100%" in os.read(terminal, 65536)
    os.close(terminal)
    quiet = subprocess.run(command, capture_output=True, env=env, timeout=60)
    assert quiet.stderr == b""
    assert json.loads(shown.stdout)["text"] == json.loads(quiet.stdout)["text"]
