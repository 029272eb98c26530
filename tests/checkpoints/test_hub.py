"""Fetching: complete, interrupted and impossible downloads, with a Hub made of local files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elf_engine import model_dir
from elf_engine.errors import ElfError
from elf_engine.published import catalogue, hub
from tests.checkpoints import makers

NAME = "ELF-B-owt"


class FakeHub:
    """Repositories as directories. The download stops after `stop_after` files, once."""

    def __init__(self, root: Path, stop_after: int | None = None) -> None:
        self.root = root
        self.stop_after = stop_after
        self.copied: list[str] = []

    def __call__(self, repo: str, directory: Path, patterns: tuple[str, ...]) -> None:
        for file in sorted((self.root / repo).rglob("*")):
            name = str(file.relative_to(self.root / repo))
            wanted = any(Path(name).parts[0].startswith(p.removesuffix("*")) for p in patterns)
            target = directory / name
            if not file.is_file() or not wanted or target.exists():
                continue
            if self.stop_after is not None and len(self.copied) == self.stop_after:
                self.stop_after = None
                raise ConnectionError("the line went dead")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            self.copied.append(f"{repo}/{name}")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hub whose size B is tiny, and an empty home."""
    monkeypatch.setenv("ELF_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(catalogue.PUBLISHED_SIZES, "B", makers.NETWORK)
    weights = makers.network()
    model = tmp_path / "hub" / catalogue.OWNER / NAME
    model.mkdir(parents=True)
    makers.write_orbax(model / "checkpoint_0", makers.train_state(weights, weights))
    (model / "README.md").write_text("not fetched")
    t5 = tmp_path / "hub" / catalogue.T5_REPO
    t5.mkdir(parents=True)
    from safetensors.numpy import save_file

    save_file(makers.hugging_face_names(makers.encoder()), t5 / "model.safetensors")
    (t5 / "config.json").write_text('{"model_type": "t5", "feed_forward_proj": "gated-gelu"}')
    makers.write_tokenizer(t5)
    (t5 / "tf_model.h5").write_text("not fetched")
    return tmp_path / "hub"


def test_pull_fetches_converts_and_installs(root: Path) -> None:
    fake = FakeHub(root)
    path = hub.pull(NAME, fetch=fake)
    assert path == model_dir.find(NAME) == model_dir.home() / "models" / NAME
    loaded = model_dir.load(path)
    makers.assert_same(loaded.network, makers.network())
    makers.assert_same(loaded.encoder, makers.encoder())
    assert loaded.config.name == NAME
    assert (path / loaded.config.tokenizer.file / "tokenizer.json").is_file()
    assert not any("not fetched" in (root / name).read_text("latin1") for name in fake.copied)
    assert not (model_dir.home() / "downloads" / NAME).exists()
    before = len(fake.copied)
    assert hub.pull(NAME, fetch=fake) == path
    assert len(fake.copied) == before


def test_an_interrupted_pull_installs_nothing_and_goes_on_where_it_stopped(root: Path) -> None:
    whole = FakeHub(root)
    hub.pull(NAME, fetch=whole)
    shutil.rmtree(model_dir.home())
    for files in range(len(whole.copied)):
        fake = FakeHub(root, stop_after=files)
        with pytest.raises(ElfError, match=r"the line went dead.*again to resume"):
            hub.pull(NAME, fetch=fake)
        assert NAME not in model_dir.installed()
        hub.pull(NAME, fetch=fake)
        assert sorted(fake.copied) == sorted(whole.copied)
        assert NAME in model_dir.installed()
        shutil.rmtree(model_dir.home())


def test_ctrl_c_passes_and_keeps_what_was_fetched(root: Path) -> None:
    def interrupted(repo: str, directory: Path, patterns: tuple[str, ...]) -> None:
        (directory / "checkpoint_0").mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.pull(NAME, fetch=interrupted)
    assert NAME not in model_dir.installed()
    assert (model_dir.home() / "downloads" / NAME / NAME / "checkpoint_0").is_dir()


def test_a_damaged_download_is_refused_and_not_installed(root: Path) -> None:
    (root / catalogue.OWNER / NAME / "checkpoint_0" / "_METADATA").write_text("{")
    with pytest.raises(ElfError, match="_METADATA: truncated or not valid JSON"):
        hub.pull(NAME, fetch=FakeHub(root))
    assert NAME not in model_dir.installed()


def test_an_unreachable_hub_says_what_to_fetch_by_hand(root: Path) -> None:
    """The real client, which the tests keep off the network."""
    with pytest.raises(ElfError) as caught:
        hub.pull(NAME)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "could not be downloaded",
        "checkpoint_*",
        f"https://huggingface.co/{catalogue.OWNER}/{NAME}",
        f"https://huggingface.co/{catalogue.T5_REPO}",
        "model.safetensors, tokenizer.json",
        f"elf models convert {NAME} {model_dir.home() / 'models' / NAME} --name {NAME} --encoder",
    ):
        assert part in message


def test_a_partial_download_never_passes_for_a_whole_one_offline(root: Path) -> None:
    with pytest.raises(ElfError):
        hub.pull(NAME, fetch=FakeHub(root, stop_after=3))
    with pytest.raises(ElfError, match="could not be downloaded"):
        hub.pull(NAME)


def test_the_command_in_the_message_works(root: Path, tmp_path: Path) -> None:
    """Copy by hand what the message asks for, then convert as it says."""
    from elf_engine.published.convert import Options, convert

    by_hand = tmp_path / NAME
    shutil.copytree(root / catalogue.OWNER / NAME, by_hand)
    t5 = root / catalogue.T5_REPO
    target = model_dir.home() / "models" / NAME
    convert(by_hand, target, Options(name=NAME, encoder=t5, tokenizer=t5))
    assert model_dir.load(model_dir.find(NAME)).config.name == NAME


def test_another_repository_can_be_named(root: Path) -> None:
    (root / "someone").mkdir()
    (root / catalogue.OWNER / NAME).rename(root / "someone" / "copy")
    hub.pull(NAME, "someone/copy", FakeHub(root))
    assert NAME in model_dir.installed()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ElfError, match="did you mean 'ELF-B-owt'"):
        hub.pull("ELF-B-owtt")
    with pytest.raises(ElfError, match="choose one of ELF-B-owt, "):
        hub.pull("zzz")


def test_tokenizers_by_path_and_by_name(root: Path, tmp_path: Path) -> None:
    assert hub.tokenizer_directory(str(root / catalogue.T5_REPO)) == root / catalogue.T5_REPO
    fetched = hub.tokenizer_directory(catalogue.T5_REPO, FakeHub(root))
    assert (fetched / "tokenizer.json").is_file()
    assert not (fetched / "model.safetensors").exists()
    with pytest.raises(ElfError, match="tokenizer 'who/what' is no directory"):
        hub.tokenizer_directory("who/what")
