"""`validate` finds all mistakes before anything runs; `doctor` says what a machine has."""

from __future__ import annotations

import pytest

from fake_packages import install, write_model_source
from pipeline_core import memory
from pipeline_core.cli import doctor


def list_files(folder):
    """List what is in a folder but compiled modules, which Python writes as it imports them."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_a_valid_experiment_is_described_stage_by_stage(folder, call):
    result = call("validate", "alpha/first")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines() if line.strip()]
    table = {line[0]: line[1:] for line in lines}
    # Nobody asks it to infer anything.
    assert table["wide"] == ["as", "base", *["to", "run"] * 3, "none"]
    assert table["longer"] == ["as", "base", "as", "base", *["to", "run"] * 2, "none"]
    assert "dataset water (1 raw file, 0.0 MB, to be imported)" in result.output
    assert result.output.splitlines()[-1] == "1 experiment is valid"


def test_a_stage_that_the_model_does_not_have_is_none(folder, call):
    absent = "without=('graph', 'infer'), options="
    source = write_model_source("lean").replace("options=", absent)
    install(folder / "site", "lean", source)
    assert (
        call("new-experiment", "lean/one", "--plugin", "lean", "--dataset", "water").exit_code == 0
    )
    text = (folder / "workflows/experiments/lean/one.yaml").read_text()
    assert "\npartition:" in text
    assert "\ngraph:" not in text
    output = call("validate", "lean/one").output
    table = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.split()}
    assert table["base"] == ["none", *["to", "run"] * 3, "none"]


def test_what_variants_differ_in_beside_sections_is_listed(folder, call):
    site = folder / "site"
    install(site, "beta", write_model_source("beta"))
    path = folder / "workflows/experiments/alpha/first.yaml"
    path.write_text(path.read_text() + "  rival: {plugin: beta}\n  pair: {ranks: 2}\n")
    output = call("validate", "alpha/first").output
    table = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.split()}
    assert table["variant"][:3] == ["plugin", "ranks", "graph"]
    assert table["base"][:2] == ["alpha", "1"]
    assert table["rival"][:4] == ["beta", "1", "to", "run"]
    assert table["pair"][:4] == ["alpha", "2", "as", "base"]


def test_copies_of_the_first_frame_have_to_fit_into_memory(folder, call, monkeypatch):
    monkeypatch.setattr(memory, "find_free_memory", lambda: 1e9)
    path = folder / "workflows/datasets/water.yaml"
    path.write_text(path.read_text().replace("keys:", "repeat: [10000, 1000, 1]\n    keys:"))
    result = call("validate")
    assert result.exit_code == 1
    message = (
        "water.xyz:0: 20000000 atoms, which 10000000 copies have, take at least 4 GB, and 1 GB"
    )
    assert message in result.stderr


def test_data_that_are_not_there_are_a_status_where_all_experiments_are_asked(folder, call):
    """A clone whose data have not been fetched is no broken one."""
    experiments, datasets = folder / "workflows/experiments/alpha", folder / "workflows/datasets"
    text = (experiments / "first.yaml").read_text()
    (experiments / "second.yaml").write_text(text.replace("dataset: water", "dataset: rare"))
    dataset = (datasets / "water.yaml").read_text()
    (datasets / "rare.yaml").write_text(dataset.replace("water.xyz", "rare.xyz"))
    result = call("validate")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    (facts,) = [line for line in lines if "dataset rare (to be imported; data missing: " in line]
    assert "rare.yaml:3: sources.0.path: no file matches 'rare.xyz'" in facts
    assert lines[-1] == "2 experiments are valid; data are missing for alpha/second"
    named = call("validate", "alpha/second")
    assert named.exit_code == 1
    assert "no file matches 'rare.xyz'" in named.stderr


def test_what_else_is_wrong_is_found_without_data(folder, call):
    (folder / "workflows/datasets/water.xyz").unlink()
    path = folder / "workflows/experiments/alpha/first.yaml"
    path.write_text(path.read_text() + "figures: {names: [nothing]}\n")
    result = call("validate")
    assert result.exit_code == 1
    assert "no figure 'nothing'" in result.stderr


def test_a_folder_without_experiments_is_no_success(folder, call, monkeypatch):
    (folder / "workflows/experiments/alpha/first.yaml").unlink()
    result = call("validate")
    assert result.exit_code == 1
    assert "workflows/experiments: holds no experiments; write one" in result.stderr
    monkeypatch.chdir(folder / "site")
    for words in (["validate"], ["verify"], ["data", "--dataset", "water"]):
        result = call(*words)
        assert result.exit_code == 1
        assert "site/workflows: no such folder" in result.stderr
        assert "pipeline-core init FOLDER" in result.stderr


def test_what_exists_is_not_to_run(folder, call):
    artifact = folder / "results/alpha/first/base/graph.h5"
    artifact.parent.mkdir(parents=True)
    artifact.touch()
    lines = call("validate").output.splitlines()
    assert next(line for line in lines if "base" in line).split()[:2] == ["base", "exists"]


def test_all_mistakes_of_all_experiments_are_listed_at_once(folder, call):
    experiments = folder / "workflows/experiments/alpha"
    good = (experiments / "first.yaml").read_text()
    (experiments / "a.yaml").write_text(good.replace("dataset: water", "dataset: watr"))
    (experiments / "b.yaml").write_text(good.replace("width: 16", "widht: 16"))
    (experiments / "c.yaml").write_text(good.replace("wide:", "wi de:"))
    (experiments / "d.yaml").write_text(good.replace("plugin: alpha", "plugin: alhpa"))
    (experiments / "e.yaml").write_text(good.replace("wide:", "figures:"))
    result = call("validate")
    assert result.exit_code == 1
    for message in (
        "watr.yaml: no such file; did you mean",
        "b.yaml:5: variants.wide.model.widht: unknown key; did you mean 'width'?",
        "'wi de' becomes the name of a folder",
        "d.yaml:2: plugin: no plugin 'alhpa' is installed",
        "no variant can be called 'figures'",
    ):
        assert message in result.stderr
    assert "A first test" in result.stdout  # the valid one is described all the same


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("water.xyz", "watre.xyz", "sources.0.path: no file matches 'watre.xyz'"),
        ("water.xyz\n", "water.xyz\n    reader: extxzy\n", "did you mean 'extxyz'?"),
        ("keys:", "units: {energy: kcal}\n    keys:", "kcal"),
    ],
)
def test_what_a_dataset_says_of_its_files_is_checked(folder, call, right, wrong, message):
    path = folder / "workflows/datasets/water.yaml"
    assert right in path.read_text()
    path.write_text(path.read_text().replace(right, wrong))
    result = call("validate", "alpha/first")
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("figures: {names: [learning_curv]}", "no figure 'learning_curv'; did you mean"),
        ("train: {start_from: old.pt}", "old.pt: no such file, but alpha/first (variant base)"),
        ("infer: {md: [{name: hot, start: hot.xyz}]}", "hot.xyz: no such file"),
    ],
)
def test_what_a_late_stage_would_miss_is_missed_at_once(folder, call, section, message):
    path = folder / "workflows/experiments/alpha/first.yaml"
    path.write_text(path.read_text() + section + "\n")
    result = call("validate", "alpha/first")
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_model_that_another_experiment_makes_need_not_be_there(folder, call):
    path = folder / "workflows/experiments/alpha/first.yaml"
    path.write_text(path.read_text() + "train: {start_from: results/alpha/other/base/model.pt}\n")
    assert call("validate", "alpha/first").exit_code == 0


def test_doctor_reports_each_thing_once_and_what_to_do(folder, call):
    result = call("doctor")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    for name in ("Python", "cores", "memory", "ranks", "torch", "snakemake", "GPUs", "results"):
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    assert any(line.split()[:3] == ["plugin", "alpha", "ok"] for line in lines)
    assert all(line.split("  ")[-1].strip() for line in lines)


def test_doctor_fails_if_something_needed_is_missing(folder, call, monkeypatch):
    monkeypatch.setattr(doctor, "MORE_PACKAGES", ("a-package-that-nobody-made",))
    result = call("doctor")
    assert result.exit_code == 1
    assert "pip install a-package-that-nobody-made" in result.output


def test_doctor_says_that_results_cannot_be_written(folder, call, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    result = call("doctor", "--results", folder / "closed")
    assert result.exit_code == 1
    assert "cannot be written (Permission denied): choose another with --results" in result.output


def read_findings(output):
    """Return the lines of the doctor, by what they are of."""
    return {line[: line.index("  ")]: " ".join(line.split()) for line in output.splitlines()}


def test_doctor_lists_where_compiled_code_is_kept(folder, call, monkeypatch):
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder / "home"))
    lines = read_findings(call("doctor").output)
    kept = folder / "home/.cache/pipeline_kernels"
    assert lines["cache of kernels in C"].endswith(f" ok {kept}")
    assert lines["cache of numba"].split()[3] == "ok"
    assert lines["cache of Triton"].endswith(f" ok {kept}/triton")
    assert lines["cache of Snakemake"].endswith(f" ok {folder}/home/.cache/snakemake")

    kept.chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(kept))
    result = call("doctor")
    assert result.exit_code == 0
    lines = read_findings(result.output)
    for name, variable in (
        ("kernels in C", "PIPELINE_KERNELS_CACHE"),
        ("numba", "NUMBA_CACHE_DIR"),
        ("Triton", "PIPELINE_KERNELS_CACHE"),
    ):
        line = lines[f"cache of {name}"]
        assert f"missing compiled anew by each process: {kept}: others can write here" in line
        assert f"set {variable} to a folder of yours" in line

    monkeypatch.setenv("HOME", "/dev/null")
    line = read_findings(call("doctor").output)["cache of Snakemake"]
    assert "missing" in line
    assert "set XDG_CACHE_HOME to a folder of yours" in line


def test_doctor_names_variables_that_nothing_reads(folder, call, monkeypatch):
    monkeypatch.setenv("PIPELINE_RANK", "4")
    monkeypatch.setenv("PIPELINE_OF_A_PLUGIN", "4")
    output = call("doctor").output
    assert "nothing reads PIPELINE_RANK; did you mean PIPELINE_RANKS?" in output
    assert "PIPELINE_OF" not in output


@pytest.mark.usefixtures("second_rank")
def test_doctor_finds_the_ranks_of_a_launcher(folder, call):
    assert "2, started by torchrun" in call("doctor").output


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "../../../evil"],
        ["graph", "--experiment", "../../../evil"],
        ["figures", "--experiment", "alpha/../../evil"],
        ["graph", "--experiment", "/evil"],
        ["graph", "--experiment", "alpha/bad", "--variant", ".."],
        ["data", "--dataset", "../evil"],
        ["download", "--dataset", "$(touch evil)"],
        ["new-experiment", "alpha/..", "--plugin", "alpha", "--dataset", "water"],
        ["new-experiment", "a b", "--plugin", "alpha", "--dataset", "water"],
        ["new-dataset", "../../evil", "workflows/datasets/water.xyz"],
    ],
    ids=" ".join,
)
def test_names_that_lead_elsewhere_are_refused_by_hand_too(folder, call, words):
    """Files lie where those names lead."""
    experiments = folder / "workflows/experiments"
    good = (experiments / "alpha/first.yaml").read_text()
    (experiments / "alpha/bad.yaml").write_text(good.replace("wide:", "..:"))
    for place in (folder / "evil.yaml", folder.parent / "evil.yaml"):
        place.write_text(good)
    dataset = (folder / "workflows/datasets/water.yaml").read_text()
    (folder / "workflows/evil.yaml").write_text(dataset)
    before = list_files(folder.parent)
    result = call(*words)
    assert result.exit_code == 1
    assert "becomes the name of a folder" in result.stderr
    assert list_files(folder.parent) == before
