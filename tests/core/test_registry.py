"""Plugins: found through entry points, loaded one by one, asked without hearing each other.

The oracle is the packaging standard itself: distributions are written to disk as
`.dist-info` folders and found by importlib.metadata.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fake_packages import find_points, forget, install, write_model_source
from pipeline_core import __version__, hookimpl, hookspec
from pipeline_core.registry import Registry
from pipeline_core.stages.builtin import load_registry


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget(tmp_path)


def load_registry_of(site: Path, builtin=()) -> Registry:
    return load_registry(find_points(site), builtin=builtin)


def write_hook(head: str, body: str = "pass") -> str:
    """Return the source of a plugin that implements one hook."""
    return f"from pipeline_core import hookimpl\n@hookimpl\ndef {head}:\n    {body}\n"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import a_missing_module", "ModuleNotFoundError: No module named 'a_missing_module'"),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("def f(:", "SyntaxError"),
        (write_hook("model()", "return 'toy'"), "model() returned str, expected ModelInfo"),
        (write_hook("modle()"), "a hook 'modle' that does not exist; did you mean 'model'?"),
        (write_hook("train(run, speed)"), "speed"),
        (write_hook("zzzzz()"), "hooks are model, task, data"),
        (
            "HOOKS_VERSION = '2.0'\n" + write_hook("zzzzz()"),
            "is made for version 2.0 of the hooks, and this pipeline-core has 1.2; install a newer",
        ),
        (
            "HOOKS_VERSION = 1.0",
            "HOOKS_VERSION = 1.0 is not a version of the hooks; write a string such as '1.2'",
        ),
        ("HOOKS_VERSION = '1'", "HOOKS_VERSION = '1' is not a version of the hooks"),
        (
            "HOOKS_VERSION = '1.7'\n" + write_hook("train_all(run)"),
            "did you mean 'train'? (it is made for version 1.7 of the hooks)",
        ),
        (
            write_model_source("broken").replace("options=", "without=('graph',), options=")
            + write_hook("graph(run)"),
            "omits the stage 'graph' and implements it; remove one of the two",
        ),
        (
            write_model_source("broken").replace("options=", "without=('partition',), options="),
            "which the shared trainer needs; implement train(run)",
        ),
    ],
)
def test_a_broken_plugin_is_listed_and_fails_only_its_own_runs(site, source, error):
    install(site, "alpha", write_model_source("alpha"))
    install(site, "broken", source)
    registry = load_registry_of(site)
    listed = {p.name: p for p in registry.plugins}
    assert error in listed["broken"].error
    assert listed["alpha"].error is None
    assert registry.get_model_info("alpha").name == "alpha"
    with pytest.raises(ValueError, match=r"plugin 'broken' from broken 1\.0 cannot be loaded: .*"):
        registry.get_model_info("broken")


def test_two_plugins_with_one_name_are_an_error_that_names_both_distributions(site):
    install(site, "first", write_model_source("same"))
    install(site, "second", write_model_source("same"), version="2.5")
    registry = load_registry_of(site)
    assert len(registry.list_models()) == 2
    message = r"'same': from first 1\.0 and from second 2\.5; uninstall one"
    with pytest.raises(ValueError, match=message):
        registry.get_model_info("same")


def test_two_distributions_with_one_entry_point_name_are_both_listed(site):
    one, two = site / "one", site / "two"
    install(one, "alpha", write_model_source("alpha"))
    install(two, "alpha", write_model_source("alpha"))
    points = find_points(one) + find_points(two)
    sys.path.insert(0, str(one))
    try:
        registry = load_registry(points, builtin=())
    finally:
        sys.path.remove(str(one))
    # One module cannot be registered twice: the second distribution is listed with that error.
    assert [p.error is None for p in registry.plugins] == [True, False]


def test_an_unknown_model_is_answered_with_the_nearest_and_all_installed(site):
    for name in ("alpha", "beta"):
        install(site, name, write_model_source(name))
    message = r"no plugin 'alpah' is installed, only alpha, beta; did you mean 'alpha'\?"
    with pytest.raises(ValueError, match=message):
        load_registry_of(site).get_model_info("alpah")
    with pytest.raises(ValueError, match="no plugin 'alpha' is installed, only none"):
        load_registry([], builtin=()).get_model_info("alpha")


class Engine:
    """Defaults of the engine."""

    @hookimpl(trylast=True)
    def train(self, run):
        return {"by": "engine", "calls": run}


class Observer:
    """Wraps a stage."""

    @hookimpl(wrapper=True)
    def train(self, run):
        run.append("before")
        try:
            return (yield)
        finally:
            run.append("after")


TRAINING = """
from pipeline_core import hookimpl
@hookimpl
def train(run):
    run.append("{name}")
    return {{"by": "{name}"}} if "{name}" == "alpha" else None
"""


def test_a_run_hears_its_own_plugin_the_engine_and_the_observers_only(site):
    for name in ("alpha", "beta"):
        install(site, name, write_model_source(name) + TRAINING.format(name=name))
    registry = load_registry_of(site, [("engine", Engine()), ("observer", Observer())])
    calls: list[str] = []
    assert registry.select_hook("train", "alpha")(run=calls)["by"] == "alpha"
    assert calls == ["before", "alpha", "after"]
    calls.clear()
    assert (
        registry.select_hook("train", "beta")(run=calls)["by"] == "engine"
    )  # beta returns None: handed on
    assert calls == ["before", "beta", "after"]
    calls.clear()
    assert registry.select_hook("train", None)(run=calls)["by"] == "engine"
    assert calls == ["before", "after"]


def test_the_fingerprint_changes_with_the_source_and_with_the_version(site):
    module = install(site, "alpha", write_model_source("alpha"))
    before = load_registry_of(site).compute_fingerprint("alpha")
    assert load_registry_of(site).compute_fingerprint("alpha") == before
    module.write_text(module.read_text() + "\n# another line\n")
    edited = load_registry_of(site).compute_fingerprint("alpha")
    (site / "alpha-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: alpha\nVersion: 1.1\n"
    )
    assert len({before, edited, load_registry_of(site).compute_fingerprint("alpha")}) == 3


@pytest.mark.parametrize("told", ["top_level.txt", "RECORD"])
def test_the_fingerprint_covers_all_packages_of_a_distribution(site, told):
    """setuptools lists packages, others files; of an editable installation only setuptools does."""
    install(site, "alpha", write_model_source("alpha"))
    source = site / "alpha_library/deep/kernel.c"
    source.parent.mkdir(parents=True)
    (site / "alpha_library/__init__.py").touch()
    source.write_text("int one;")
    listed = {
        "top_level.txt": "alpha_plugin\nalpha_library\n",
        "RECORD": "alpha_plugin.py,,\nalpha_library/__init__.py,,\nalpha-1.0.dist-info/RECORD,,\n",
    }
    before = load_registry_of(site).compute_fingerprint("alpha")
    (site / "alpha-1.0.dist-info" / told).write_text(listed[told])
    known = load_registry_of(site).compute_fingerprint("alpha")
    source.write_text("int two;")
    assert len({before, known, load_registry_of(site).compute_fingerprint("alpha")}) == 3


def test_the_engine_is_no_part_of_the_fingerprints_of_its_own_plugins():
    """All are one distribution."""
    registry = load_registry()
    names = {info.name for info in registry.list_models()}
    assert len({registry.compute_fingerprint(name) for name in names}) == len(names)
    facts = registry.identify("mace")
    assert (facts["distribution"], facts["plugin_version"]) == ("pipeline-core", __version__)


@pytest.mark.parametrize("version", ["0.9", "1.0", "1.7"])
def test_plugins_of_this_and_earlier_major_versions_are_taken(site, version):
    install(site, "alpha", f"HOOKS_VERSION = {version!r}\n" + write_model_source("alpha"))
    (plugin,) = load_registry_of(site).plugins
    assert plugin.error is None


class OlderSpecs:
    """Hooks of which some are to go."""

    @hookspec
    def model(self): ...

    @hookspec(warn_on_impl=FutureWarning("hook 'prepare' goes in 2.0: implement 'data' instead"))
    def prepare(self, run): ...

    @hookspec(
        warn_on_impl_args={"device": FutureWarning("'device' goes in 2.0: run.device has it")}
    )
    def calculator(self, run, device): ...


OLDER = """
from pipeline_core import hookimpl
@hookimpl
def prepare(run):
    return "prepared"
@hookimpl
def calculator(run, device):
    return device
"""


def test_hooks_that_are_to_go_work_on_and_warn_with_the_cure(site):
    install(site, "alpha", OLDER)
    install(site, "beta", "")
    points = find_points(site)
    with pytest.warns(FutureWarning, match="plugin 'alpha' from alpha 1.0: ") as told:
        registry = Registry(OlderSpecs, "1.4", (), points)
    messages = [str(warning.message) for warning in told]
    assert sorted(m.partition("1.0: ")[2] for m in messages) == [
        "'device' goes in 2.0: run.device has it",
        "hook 'prepare' goes in 2.0: implement 'data' instead",
    ]
    deprecated = {plugin.name: plugin.deprecated for plugin in registry.plugins}
    assert {name: len(cures) for name, cures in deprecated.items()} == {"alpha": 2, "beta": 0}
    assert registry.select_hook("prepare", None)(run=None) == ["prepared"]


def test_what_models_bring_to_lists_is_open_to_all(site):
    brings = "\n@hookimpl\ndef readers():\n    return ['{0} format']\n"
    install(site, "alpha", write_model_source("alpha") + brings.format("alpha"))
    install(site, "beta", write_model_source("beta") + brings.format("beta"))
    assert sorted(load_registry_of(site).collect("readers")) == ["alpha format", "beta format"]


STUDY = """
from pipeline_core import hookimpl
from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import Section

class StudyOptions({base}):
    probes: int = 0
    '''Measured probes.'''

@hookimpl
def sections(info):
    return {{"profile": StudyOptions}} if info.name == "alpha" else None

@hookimpl(tryfirst=True)
def profile(run):
    return {{"by": "study"}} if run else None
"""


def test_options_that_a_plugin_adds_to_a_model(site):
    """Its hook comes before the hook of the model, and its source counts to the model's."""
    own = write_hook("profile(run)", "return {'by': 'alpha'}")
    install(site, "alpha", write_model_source("alpha") + own)
    alone = load_registry_of(site)
    study = install(site, "study", STUDY.format(base="ProfileOptions"))
    registry = load_registry_of(site)
    added = registry.get_model_info("alpha").section_models["profile"]
    assert "probes" in added.model_fields
    assert "probes" not in alone.get_model_info("alpha").section_models["profile"].model_fields
    profile = registry.select_hook("profile", "alpha")
    assert [profile(run=asked)["by"] for asked in (True, False)] == ["study", "alpha"]
    known = registry.compute_fingerprint("alpha")
    study.write_text(study.read_text() + "\n# another line\n")
    edited = load_registry_of(site).compute_fingerprint("alpha")
    assert len({alone.compute_fingerprint("alpha"), known, edited}) == 3


def test_sections_that_do_not_extend_those_of_the_model_are_refused(site):
    install(site, "alpha", write_model_source("alpha"))
    install(site, "study", STUDY.format(base="Section"))
    alpha, study = load_registry_of(site).plugins
    assert "StudyOptions for the section 'profile' of 'alpha', which has Profile" in study.error
    assert "probes" not in alpha.model.section_models["profile"].model_fields


def test_two_plugins_cannot_extend_one_section(site):
    install(site, "alpha", write_model_source("alpha"))
    for name in ("study", "third"):
        install(site, name, STUDY.format(base="ProfileOptions"))
    _, study, third = load_registry_of(site).plugins
    assert study.error is None
    assert "which has StudyOptions; derive it from that" in third.error
