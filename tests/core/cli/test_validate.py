"""`validate` finds all mistakes before anything runs; `doctor` says what a machine has."""

import pytest

from core.cli.conftest import read_rows
from fake_packages import install, write_model_source
from pipeline_core.cli import doctor
from pipeline_core.system import memory


def list_files(folder):
    """List what is in a folder but compiled modules, which Python writes as it imports them."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_a_valid_experiment_is_described_stage_by_stage(folder, call):
    result = call("validate", "alpha/first")
    assert result.exit_code == 0, result.output
    table = read_rows(result.output)
    # Nobody asks it to infer anything.
    assert table["base"] == [*["to", "run"] * 4, "none"]
    assert table["wide"] == ["as", "base", *["to", "run"] * 3, "none"]
    assert table["longer"] == ["as", "base", "as", "base", *["to", "run"] * 2, "none"]
    assert "dataset water (1 raw file, 0.0 MB, to be imported)" in result.output
    assert result.output.splitlines()[-1] == "1 experiment is valid"
    artifact = folder / "results/alpha/first/base/graph.h5"
    artifact.parent.mkdir(parents=True)
    artifact.touch()
    assert read_rows(call("validate").output)["base"][0] == "exists"
    # A model that another experiment makes need not be there.
    path = folder / "workflows/experiments/alpha/first.yaml"
    path.write_text(path.read_text() + "train: {start_from: results/alpha/other/base/model.pt}\n")
    assert call("validate", "alpha/first").exit_code == 0


@pytest.mark.slow
def test_a_stage_that_the_model_does_not_have_is_none(folder, call):
    absent = "without=('graph', 'infer'), options="
    source = write_model_source("lean").replace("options=", absent)
    install(folder / "site", "lean", source)
    words = ["lean/one", "--plugin", "lean", "--dataset", "water"]
    assert call("new-experiment", *words).exit_code == 0
    text = (folder / "workflows/experiments/lean/one.yaml").read_text()
    assert "\npartition:" in text
    assert "\ngraph:" not in text
    table = read_rows(call("validate", "lean/one").output)
    assert table["base"] == ["none", *["to", "run"] * 3, "none"]


def test_what_variants_differ_in_beside_sections_is_listed(folder, call):
    install(folder / "site", "beta", write_model_source("beta"))
    path = folder / "workflows/experiments/alpha/first.yaml"
    path.write_text(path.read_text() + "  rival: {plugin: beta}\n  pair: {ranks: 2}\n")
    table = read_rows(call("validate", "alpha/first").output)
    assert table["variant"][:3] == ["plugin", "ranks", "graph"]
    assert table["base"][:2] == ["alpha", "1"]
    assert table["rival"][:4] == ["beta", "1", "to", "run"]
    assert table["pair"][:4] == ["alpha", "2", "as", "base"]


def test_copies_of_the_first_frame_have_to_fit_into_memory(folder, refuse, monkeypatch):
    monkeypatch.setattr(memory, "find_free_memory", lambda: 1e9)
    path = folder / "workflows/datasets/water.yaml"
    path.write_text(path.read_text().replace("keys:", "repeat: [10000, 1000, 1]\n    keys:"))
    message = "20000000 atoms, which 10000000 copies have, take at least 4 GB, and 1 GB"
    refuse(["validate"], f"water.xyz:0: {message}")


@pytest.mark.slow
def test_data_that_are_not_there_are_a_status_where_all_experiments_are_asked(folder, call, refuse):
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
    refuse(["validate", "alpha/second"], "no file matches 'rare.xyz'")
    # What else is wrong is found without data.
    (experiments / "second.yaml").write_text(f"{text}figures: {{names: [nothing]}}\n")
    (datasets / "water.xyz").unlink()
    refuse(["validate"], "no figure 'nothing'")


def test_a_folder_without_experiments_is_no_success(folder, refuse, monkeypatch):
    (folder / "workflows/experiments/alpha/first.yaml").unlink()
    refuse(["validate"], "workflows/experiments: holds no experiments; write one")
    monkeypatch.chdir(folder / "site")
    for words in (["validate"], ["verify"], ["experiments"], ["data", "--dataset", "water"]):
        refuse(words, "site/workflows: no such folder", "pipeline-core init FOLDER")


def test_all_mistakes_of_all_experiments_are_listed_at_once(folder, call):
    experiments = folder / "workflows/experiments/alpha"
    good = (experiments / "first.yaml").read_text()
    mistakes = {
        ("dataset: water", "dataset: watr"): "watr.yaml: no such file; did you mean",
        ("width: 16", "widht: 16"): "variants.wide.model.widht: unknown key; did you mean 'width'?",
        ("wide:", "wi de:"): "'wi de' becomes the name of a folder",
        ("plugin: alpha", "plugin: alhpa"): ":2: plugin: no plugin 'alhpa' is installed",
        ("wide:", "figures:"): "no variant can be called 'figures'",
    }
    for number, change in enumerate(mistakes):
        (experiments / f"bad{number}.yaml").write_text(good.replace(*change))
    result = call("validate")
    assert result.exit_code == 1
    for message in mistakes.values():
        assert message in result.stderr
    assert "A first test" in result.stdout  # the valid one is described all the same


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("figures: {names: [learning_curv]}", "no figure 'learning_curv'; did you mean"),
        ("train: {start_from: old.pt}", "old.pt: no such file, but alpha/first (variant base)"),
        ("infer: {md: [{name: hot, start: hot.xyz}]}", "hot.xyz: no such file"),
        ("  - path: watre.xyz", "sources.1.path: no file matches 'watre.xyz'"),
        ("  - {path: water.xyz, reader: extxzy}", "did you mean 'extxyz'?"),
        ("  - {path: water.xyz, units: {energy: kcal}}", "kcal"),
    ],
)
def test_what_a_late_stage_would_miss_is_missed_at_once(folder, refuse, more, message):
    """In the experiment, and in its dataset."""
    name, before = ("water", "labels:") if more.startswith(" ") else ("first", "variants:")
    (path,) = (folder / "workflows").rglob(f"{name}.yaml")
    path.write_text(path.read_text().replace(before, f"{more}\n{before}"))
    refuse(["validate", "alpha/first"], message)


def test_doctor_reports_each_thing_once_and_what_to_do(folder, call):
    result = call("doctor")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    for name in ("Python", "cores", "memory", "ranks", "torch", "snakemake", "GPUs", "results"):
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    assert any(line.split()[:3] == ["plugin", "alpha", "ok"] for line in lines)
    assert all(line.split("  ")[-1].strip() for line in lines)


def test_doctor_fails_if_something_needed_is_missing(folder, call, monkeypatch):
    def deny(**_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as without:
        without.setattr(doctor, "MORE_PACKAGES", ("a-package-that-nobody-made",))
        result = call("doctor")
    assert result.exit_code == 1
    assert "pip install a-package-that-nobody-made" in result.output
    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", deny)
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


def test_doctor_names_variables_that_nothing_reads(folder, call, monkeypatch, second_rank):
    """And finds the ranks of a launcher."""
    monkeypatch.setenv("PIPELINE_RANK", "4")
    monkeypatch.setenv("PIPELINE_OF_A_PLUGIN", "4")
    output = call("doctor").output
    assert "nothing reads PIPELINE_RANK; did you mean PIPELINE_RANKS?" in output
    assert "PIPELINE_OF" not in output
    assert "2, started by torchrun" in output


@pytest.mark.slow
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
