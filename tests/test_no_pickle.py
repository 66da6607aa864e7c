"""No file is read by anything that can run code from it.

Tests read what they have written themselves. One module reads pickles of another program by an
unpickler that never looks up a name; `tests/plugins/mace/conversion/test_pickles.py` tests that.
"""

import re
from pathlib import Path

import pytest

SHELVES = ("pipeline_core", "kernels", "plugins")
RESTRICTED = Path("plugins/pipeline_mace/conversion/pickles.py")
FORBIDDEN = {
    r"\bpickle\.(_?loads?|_?Unpickler)\b": "pickle",
    r"\b(cPickle|dill|cloudpickle|shelve|marshal|joblib)\b": "a module that unpickles",
    r"\ballow_pickle\s*=\s*True": "numpy's pickles",
    r"\bread_pickle\b": "pickles of tables",
    r"\btorch\.load\((?!.*weights_only=True)": "torch.load without weights_only=True",
    r"\byaml\.(unsafe_load|full_load|load\()": "YAML that makes objects",
    r"\bshell\s*=\s*True|\bos\.(system|popen)\b": "words that a shell reads",
    r"(?<![\w.])(eval|exec)\(": "text that is run",
}


@pytest.mark.parametrize("pattern", FORBIDDEN, ids=FORBIDDEN.get)
def test_nothing_runs_code_from_a_file(pattern):
    root = Path(__file__).parents[1]
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for shelf in SHELVES
        for path in sorted((root / shelf).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line.partition("#")[0])
        and (path.relative_to(root), line) != (RESTRICTED, "class _Unpickler(pickle._Unpickler):")
    ]
    assert not found
