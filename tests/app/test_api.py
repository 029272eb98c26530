"""The interface for programs: the documented example does what the document says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.browser import Site, wait_for

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_documents_example(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.S)
    assert "http://127.0.0.1:7860" in code
    names: dict[str, Any] = {}
    exec(code.replace("http://127.0.0.1:7860", site.url), names)
    found = names["candidates"]
    assert [(c["seed"], c["sample"]) for c in found] == [("7", 0), ("7", 1)]
    fields = {"text", "changes", "seed", "sample", "id", "model", "settings", "warnings"}
    assert found[0].keys() == fields
    assert all(f"`{field}`" in DOCUMENT.read_text("utf-8") for field in fields)
    assert capsys.readouterr().out == "".join(f"{c['sample']} {c['text']}\n" for c in found)
    kept = site.store.get(names["english"][0]["id"])
    assert (kept.editor, kept.input) == ("translate", "Das Haus ist alt.")
    assert site.store.get(names["filled"][0]["id"]).editor == "infill"


def test_a_caller_that_goes_stops_its_run(site: Site) -> None:
    text, before = "gate of one who left", site.service.metrics()["stopped"]

    def stopped() -> bool:
        """Takes one more step only when the run does not end by itself within a second."""
        ended = wait_for(lambda: site.service.metrics()["stopped"] > before, seconds=1.0)
        if not ended:
            site.world.gate.release()
        return ended

    with httpx.Client(base_url=site.url, timeout=60) as client:
        given = {"data": [text, 0, {"seed": "7"}]}
        event = client.post("gradio_api/call/draft", json=given).json()["event_id"]
        with client.stream("GET", f"gradio_api/call/draft/{event}"):
            site.world.gate.release()
            assert wait_for(lambda: (text, 1) in site.world.steps_made)
    assert wait_for(stopped)
    assert text in site.world.closed
    assert (text, 6) not in site.world.steps_made
    assert site.store.list(limit=1)[0].input != text


def test_health_and_metrics(site: Site) -> None:
    with httpx.Client(base_url=site.url, timeout=60) as client:
        assert client.get("health").json() == {"status": "ok"}
        facts = client.get("metrics").json()
    document = DOCUMENT.read_text("utf-8")
    assert all(f"`{name}`" in document for name in facts)
    assert facts["memory_bytes"] > 1 << 20
    assert facts["waiting"] == facts["running"] == 0


@pytest.mark.parametrize(
    ("endpoint", "data", "message"),
    [
        ("draft", [None, 0, None], "expected str, found None"),
        ("draft", ["A", True, None], "expected int, found True"),
        ("draft", ["A", 0, "x"], "expected a mapping"),
        ("draft", ["A", 0, {"seed": "9" * 5000}], "seed '999"),
        ("rewrite", ["A", "0.5", None, None, None], "expected float, found '0.5'"),
        ("infill", ["A", [0, 1], None], "ranges are pairs"),
        ("infill", ["A", [[0, 1, 2]], None], "ranges are pairs"),
    ],
)
def test_values_of_a_wrong_type_are_refused_in_one_line(
    site: Site, endpoint: str, data: list[Any], message: str
) -> None:
    """One that ran would be in the history, and nobody could read that again."""
    with httpx.Client(base_url=site.url, timeout=60) as client:
        event = client.post(f"gradio_api/call/{endpoint}", json={"data": data}).json()["event_id"]
        answer = client.get(f"gradio_api/call/{endpoint}/{event}").text
    assert answer.startswith("event: error")
    assert message in answer
    site.store.list()
