"""What a page of the documentation tells its reader to type, as a program that does it.

Of the fenced blocks of a page those of `bash` are run and those of `python` given to Python, in
their order; any block whose first line is a comment that names a file is written to that file, as a
reader would. Indented blocks are shown and not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from forked_programs import start_programs, write_script

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.\w+)\n")

# Trainings of pages are long enough to be of use; here they are as short as they can be, and
# figures are files of one format.
SHORT = r"""#!/bin/sh
for file in workflows/experiments/*/*.yaml; do
    grep -q ^figures: "$file" || echo "figures: $FIGURES" >> "$file"
done
find workflows/experiments -name '*.yaml' -exec \
    sed -i -E 's/^( *epochs: )([3-9]|[1-9][0-9]+)$/\11/' {} +
exec "$PROGRAMS/NAME" "$@"
"""


# What a page installs goes into a folder of the test, where nothing can be editable.
PIP = """#!/bin/sh
shift
if [ "$1" = -e ]; then shift; fi
exec "$PROGRAMS/python" -m pip install --quiet --no-deps --no-build-isolation \\
    --target "$INSTALLED" "$@"
"""


# Programs of a page are run by an interpreter that has imported the engine.
PYTHON = """#!/bin/sh
if [ "$1" = - ]; then exec "$PROGRAMS/forked-python" "$@"; fi
exec "$PROGRAMS/python" "$@"
"""


def write_program(page: Path) -> str:
    """Return what a reader of the page does, as a program of the shell."""
    parts = ["set -eu"]
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        file = FILE.match(text)
        if file:
            path, content = file[1], text if language != "text" else text[file.end() :]
            parts.append(f"mkdir -p $(dirname {path})\ncat > {path} <<'END'\n{content}END")
        elif language == "bash":
            parts.append(text)
        elif language == "python":
            parts.append(f"python - <<'END'\n{text}END")
    return "\n".join(parts)


def run_page(page: Path, folder: Path, figures: str = "{formats: [png]}") -> str:
    """Do what a page says, in a folder; return what is printed.

    Args:
        page: The page.
        folder: Where its reader is.
        figures: What experiments draw that do not say it.
    """
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("snakemake", "pipeline-core"):
        write_script(programs / name, SHORT.replace("NAME", name))
    write_script(programs / "pip", PIP)
    write_script(programs / "python", PYTHON)
    installed = folder.parent / "installed"
    forked, here = start_programs(), Path(sys.executable).parent
    environment = os.environ | {
        "PROGRAMS": str(forked),
        "FIGURES": figures,
        "PATH": f"{programs}:{forked}:{here}:{os.environ['PATH']}",
        "INSTALLED": str(installed),
        "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        ["bash", "-c", write_program(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
