"""The server as a process: quick to start, on this machine alone, real engine behind it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import server as web
from app.runtime import real_runtime
from app.service import Done, Event, Failed, Finished, Service
from app.store import Store
from editors.request import EditRequest
from elf_engine.config import SampleSpec
from elf_engine.errors import ElfError
from tests.fakes import tiny_model_dir

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tiny_model_dir(tmp_path / "models")
    monkeypatch.setenv("ELF_HOME", str(tmp_path))
    monkeypatch.delenv("ELF_DATABASE_URL", raising=False)
    return tmp_path


@pytest.fixture
def server(home: Path) -> Iterator[subprocess.Popen[str]]:
    # A shell without job control lets its background programs ignore Ctrl-C.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from app.server import serve; serve(port=0, model='tiny')"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    yield process
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


def test_it_says_where_it_is_and_ends_when_asked(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line.startswith("ELF Studio is at http://127.0.0.1:")
    with urllib.request.urlopen(line.split()[-1], timeout=60) as answer:
        page = answer.read().decode()
    assert "ELF Studio" in page
    server.send_signal(signal.SIGINT)
    assert server.wait(90) == 0


def test_the_page_needs_no_array_library_to_open() -> None:
    code = (
        "import sys, app.server; heavy = {'torch', 'jax', 'flax', 'transformers'}; "
        "bad = heavy & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_taken_port_is_a_line() -> None:
    with socket.socket() as other:
        other.bind((web.LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ElfError, match=f"port {port} on 127.0.0.1 cannot be used"):
            web.serve(port=port)
    with pytest.raises(ElfError, match="port 70000"):
        web.serve(port=70000)


def test_an_unknown_model_or_backend_is_a_line(home: Path) -> None:
    with pytest.raises(ElfError, match="no model 'nonesuch'"):
        web.serve(port=0, model="nonesuch")
    with pytest.raises(ElfError, match="backend 'cuda' is unknown"):
        web.serve(port=0, model="tiny", backend="cuda")


def test_a_damaged_model_is_a_line(home: Path) -> None:
    (home / "models" / "tiny" / "config.json").write_text("{")
    with pytest.raises(ElfError, match="not valid JSON"):
        web.serve(port=0, model="tiny")


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_real_engine_behind_the_service(home: Path, backend: str) -> None:
    store = Store()
    service = Service(real_runtime(), store)
    assert "tiny" in service.models()
    seen: list[Event] = []
    request = EditRequest(
        "infill", "A [[3]] house.", count=2, settings=SampleSpec(steps=3, seed=4),
        texts_every_step=True,
    )  # fmt: skip
    job = service.submit(request, "tiny", backend, seen.append, keep_steps=True)
    assert job.wait(120)
    service.close()
    assert [e for e in seen if isinstance(e, Failed)] == []
    assert seen[-1] == Done(stopped=False)
    results = [e for e in seen if isinstance(e, Finished)]
    assert [r.result.index for r in results] == [0, 1]
    for finished in results:
        assert finished.id is not None
        kept = store.get(finished.id)
        assert (kept.output, kept.backend) == (finished.result.text, backend)
        assert kept.output.startswith("A ")
        assert kept.output.endswith(" house.")
        assert [s.i for s in store.steps(kept.id)] == [1, 2, 3]
        assert store.steps(kept.id)[-1].text == kept.output
    store.close()


def test_the_history_reproduces_its_texts(home: Path) -> None:
    """What is stored, and nothing else, gives the same text on a fresh engine."""
    import editors
    from elf_engine.pipeline import Engine

    store = Store()
    service = Service(real_runtime(), store)
    request = EditRequest("draft", "Once", count=3, length=12, settings=SampleSpec(steps=3, seed=9))
    assert service.submit(request, "tiny", "torch", lambda event: None).wait(120)
    service.close()
    kept = store.list()[0]
    engine = Engine.load(kept.model, backend=kept.backend)
    assert engine.model_hash == kept.model_hash
    again = [r for r in editors.run(engine, kept.request) if isinstance(r, editors.EditResult)]
    assert [r.text for r in again if r.index == kept.sample_index] == [kept.output]
    store.close()
