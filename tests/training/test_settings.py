"""Presets hold the published recipe; settings are strict and say what is nearest."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from elf_engine.config import PUBLISHED_SIZES, EncoderSpec, FlowSpec
from elf_engine.errors import ElfError
from elf_engine.model_dir import expected_shapes
from elf_engine.published.catalogue import CATALOGUE, T5_REPO
from training import settings
from training.config import TrainConfig
from training.train import cli

PUBLISHED = {
    "owt-b": "ELF-B-owt",
    "owt-m": "ELF-M-owt",
    "owt-l": "ELF-L-owt",
    "de-en-b": "ELF-B-de-en",
    "xsum-b": "ELF-B-xsum",
}
TASK = {"draft": "pad", "translate": "eos", "summarise": "eos"}


@pytest.mark.parametrize("name", settings.presets())
def test_every_preset_is_read(name: str) -> None:
    config = settings.load(name)
    assert config.name == name
    assert set(config.batches.mix) <= set(config.layout.tasks)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_presets_are_the_published_models(name: str) -> None:
    """The catalogue says how the published models are laid out and sampled."""
    config, model = settings.load(name), CATALOGUE[PUBLISHED[name]]
    sizes = dataclasses.replace(PUBLISHED_SIZES[model.size], max_length=model.family.max_length)
    assert config.network == sizes
    assert config.layout == model.family.layout()
    assert config.tokenizer_spec == model.family.tokenizer()
    assert config.defaults == model.defaults()
    assert config.encoder == EncoderSpec()
    assert (config.embeddings, config.encoder_from) == ("pretrained", T5_REPO)
    assert config.flow == FlowSpec(noise_scale=2.0, t_eps=0.05, p_mean=-1.5, p_std=0.8)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_presets_are_the_published_recipe(name: str) -> None:
    """ELF.md, "Training", number by number."""
    config, family = settings.load(name), CATALOGUE[PUBLISHED[name]].family
    plan, rule, stream = config.objective, config.optimizer, config.batches.stream
    assert plan.branch == "step"
    assert (plan.decode_share, plan.self_cond_share) == (0.2, 0.5)
    assert (plan.w_min, plan.w_max) == (0.5, 5.0)
    assert (plan.lambda_mean, plan.lambda_std) == (0.8, 0.8)
    assert plan.decode_noise == (1.0 if family.conditional else 5.0)
    assert plan.label_drop == (0.1 if family.conditional else 0.0)
    assert plan.loss_mask == TASK[family.task]
    assert (plan.padding, plan.decode_condition) == ("attended", "noised")
    assert rule.kind == "muon"
    assert rule.learning_rate == rule.adam_learning_rate == pytest.approx(0.001 * 512 / 256)
    assert (rule.clip, rule.ema, rule.ema_ramp, rule.decay_from) == (1.0, 0.9999, False, -1)
    assert rule.warmup > 0
    assert (rule.warmup_start, rule.weight_decay, rule.adam_for) == ("zero", 0.0, ())
    assert stream is not None
    assert (stream.layout, stream.rows, stream.length) == ("published", 512, family.max_length)
    assert (stream.max_source, stream.fill) == (family.max_source, TASK[family.task])
    assert config.batches.batch_tokens == 512 * family.max_length


def test_the_studio_preset_fits_one_accelerator_and_sixty_four_mebibytes() -> None:
    config = settings.load("studio")
    network, encoder = (
        sum(math.prod(shape) for shape in expected_shapes(spec).values())
        for spec in (config.network, config.encoder)
    )
    assert 25e6 <= network <= 40e6
    assert config.network.max_length == max(config.layout.lengths) == 128
    assert 2 * (network + encoder) < 60 * 2**20


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimizer.learning_rat=1", "did you mean 'optimizer.learning_rate'?"),
        ("optimizr.clip=1", "did you mean 'optimizer.clip'?"),
        ("clip=1", "did you mean 'optimizer.clip'?"),
        ("stps=1", "did you mean 'steps'?"),
        ("steps=many", "steps: expected int, found 'many'"),
        ("steps=1.5", "steps: expected int, found 1.5"),
        ("remat=1", "remat: expected bool, found 1"),
        ("optimizer.kind=adam", "'adam' is unknown; choose one of muon, adamw"),
        ("network.heads=5", "choose hidden as an even multiple of heads"),
        ("steps", "write it as key=value"),
        ("layout.lengths=[32", "cannot be read"),
        ("batches.mix.draft.shar=1", "did you mean 'share'?"),
        ("mesh.fsdp=0", "fsdp 1 or more"),
        ("embeddings=pretrained", "pretrained needs an encoder"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_the_nearest(setting: str, message: str) -> None:
    with pytest.raises(ElfError) as error:
        settings.load("starter", [setting])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    done = CliRunner().invoke(cli, ["--config", "starter", "--set", setting])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"error: {error.value}\n"


def test_settings_replace_what_the_preset_says() -> None:
    config = settings.load(
        "starter",
        ["optimizer.learning_rate=1e-3", "steps=7", "mesh.fsdp=2", "batches.mix.draft.share=0.5",
         "optimizer.adam_for=[]", "encoder_training.optimizer.clip=2"],
    )  # fmt: skip
    base = settings.load("starter")
    assert config.optimizer.learning_rate == 0.001
    assert config.encoder_training.optimizer.clip == 2.0
    assert (config.steps, config.mesh.fsdp, config.optimizer.adam_for) == (7, 2, ())
    assert config.batches.mix["draft"].share == 0.5
    assert config.batches.mix["draft"].groups == base.batches.mix["draft"].groups
    assert settings.change(config, []) == config
    assert settings.change(base, ["steps=7"]) == dataclasses.replace(base, steps=7)


def test_files_are_strict_and_may_extend_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    for text, message in (
        ("name: x\nstep: 3\n", "unknown key 'step'; did you mean 'steps'"),
        ("- 1\n", "expected a mapping"),
        ("name: [\n", "is not readable YAML"),
        (f"extends: {file}\n", "is it a circle"),
    ):
        file.write_text(text)
        with pytest.raises(ElfError, match=message.replace("?", r"\?")):
            settings.load(str(file))
    file.write_text("extends: tiny\nname: x\nnetwork: {depth: 1}\n")
    tiny = settings.load("tiny")
    network = dataclasses.replace(tiny.network, depth=1)
    assert settings.load(str(file)) == dataclasses.replace(tiny, name="x", network=network)


def test_every_key_of_a_config_is_known() -> None:
    keys = set(settings.known_keys(TrainConfig))
    assert {"steps", "optimizer.learning_rate", "mesh.data", "batches.mix.*.share"} <= keys
    assert {"batches.stream.rows", "watch.stop_factor", "defaults.*.steps"} <= keys


def elf_train(*words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    run = (
        code
        or f"import sys; sys.argv[1:] = {list(words)!r}; from training.train import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", run],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_help_is_quick_and_errors_are_one_line_with_code_two(tmp_path: Path) -> None:
    heavy = "('jax', 'flax', 'orbax', 'torch', 'transformers', 'tensorboardX')"
    done = elf_train(
        code="import sys; from training.train import cli\n"
        "try: cli(['--help'])\nexcept SystemExit: pass\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert done.stdout.endswith("[]\n"), done.stderr
    assert "accelerator" in done.stdout
    done = elf_train("--config", "startr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no training config 'startr'; did you mean 'starter'?")
    assert done.stderr.count("\n") == 1


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    for words, message in (
        ([], "say what to train"),
        (["resume", str(tmp_path)], "is no run"),
        (["export", str(tmp_path), str(tmp_path / "out")], "is no run"),
        (["encoder"], "say which"),
        (["--set", "steps=3", "presets"], "behind the command's name"),
        (["join", str(tmp_path), str(tmp_path / "out")], "holds no parts.json"),
    ):
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


def test_presets_are_listed_and_shown() -> None:
    assert CliRunner().invoke(cli, ["presets"]).output.split() == settings.presets()
    shown = CliRunner().invoke(cli, ["presets", "studio"]).output
    assert "learning_rate: 0.004" in shown
