"""Chapters with made-up content that has all that a page can show, and what could break it."""

from __future__ import annotations

import base64
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline_core.figures.findings import Number, Snippet, Table
from pipeline_core.report.chapter import Chapter, Illustration, write_chapter

LONG = "a_word_that_no_screen_of_a_telephone_is_wide_enough_for_and_that_has_no_space_in_it"


@cache
def make_picture(width: int, height: int) -> str:
    """Return the address of a picture: a gradient from corner to corner."""
    ramp = np.add.outer(np.linspace(0, 127, height), np.linspace(0, 127, width)).astype("u1")
    buffer = BytesIO()
    Image.fromarray(np.stack([ramp, ramp[::-1], 255 - ramp], axis=2)).save(buffer, "webp")
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def make_illustration(name: str, width: int, height: int) -> Illustration:
    return Illustration(
        name=name,
        title=f"Of {name}",
        caption=f"What is seen in {name}.",
        category="Accuracy",
        picture=make_picture(width, height),
        width=width,
        height=height,
        files=[f"{name}.{kind}" for kind in ("png", "svg", "pdf", "csv", "rst")],
    )


def make_chapter(experiment: str = "toy/alloy", n_warnings: int = 2) -> Chapter:
    """Return a chapter with everything."""
    return Chapter(
        experiment=experiment,
        lead=f"Copper & gold <made up>; {LONG}. Once more, so that it takes more than one line.",
        verdict="The force error on 72 test frames is 12 % of the mean absolute force: moderate.",
        grade="moderate",
        grades="Small: below 10 %.",
        headline=Number(title="Force error", value="21.3 ± 0.4 meV/Å", note=f"R² 0.999; {LONG}"),
        thumbnail=make_picture(480, 300),
        numbers=[
            Number(title="Data", value="1,080 frames", note="960 training, 120 test"),
            Number(title="Force error", value="21.3 ± 0.4 meV/Å"),
        ],
        warnings=[f"Warning {number} of {experiment}." for number in range(n_warnings)],
        results=[
            Table(
                title="Variants",
                header=["Variant", *(f"column {number} of many" for number in range(12))],
                rows=[[name, *["21.3 ± 0.4 meV/Å"] * 12] for name in ("base", "wide", LONG)],
                note="Means.",
                marked=1,
            )
        ],
        illustrations=[
            make_illustration("parity", 2100, 900),
            make_illustration("load", 1020, 900),
        ],
        tables=[Table(title="Settings", header=["setting", "value"], rows=[["Cutoff", "4.5 Å"]])],
        snippets=[Snippet(title="Make it again", code=f"snakemake {LONG * 3}")],
        limits=["The scale is laptop.", f"One training a variant; {LONG * 2}."],
        provenance=Table(title="Provenance", rows=[["commit", LONG * 2]]),
    )


def write_chapters(results: Path, *experiments: str) -> Path:
    """Write a chapter of each experiment into its folder of figures; return the results."""
    for name in experiments:
        folder = results / name / "figures"
        folder.mkdir(parents=True)
        write_chapter(folder, make_chapter(name))
    return results
