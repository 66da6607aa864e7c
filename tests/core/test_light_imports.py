"""What takes long to load is loaded where it is needed, and nowhere before."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "from pipeline_atoms import plugin; plugin.readers()",
            ("torch", "ase", "pymatgen", "h5py", "scipy"),
        ),
        ("import pipeline_atoms.plugin", ("torch", "h5py", "ase")),
        ("import pipeline_htfbr.data.datasets", ("torch", "ase", "tblite", "scipy", "h5py")),
        # It takes longer than all else that an import of few frames, or a cheap label, does.
        (
            "import pipeline_atoms.importing.dataset, pipeline_atoms.active_learning.labels",
            ("torch",),
        ),
        ("import pipeline_core.stages.figures", ("torch", "matplotlib", "h5py")),
        (
            "import pipeline_core.figures.drawing, pipeline_core.figures.catalogue",
            ("torch", "matplotlib.pyplot"),
        ),
        (
            "from pipeline_core.system import seeds\nwith seeds.use_deterministic(True): pass",
            ("torch._dynamo",),
        ),
    ],
    ids=["readers", "data", "datasets", "importing", "figures", "drawing", "seeds"],
)
def test_modules_that_take_long_are_not_loaded(code, absent):
    code = f"{code}\nimport sys; print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(absent) & set(run.stdout.split())
