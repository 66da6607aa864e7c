"""Chapters as one HTML page, with its style, its script and all its pictures inside."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import quote

from pipeline_core.report.chapter import Chapter, Illustration, Number, Snippet, Table

_FOLDER: Final = Path(__file__).parent
_WIDE: Final = 1800
"""Pixels beyond which a picture has a row of its own."""
_SCALE: Final = 2.5
"""Pixels of a picture per pixel of the page, at least: zooming shows more."""
_FEW: Final = 3
_FORMATS: Final = {"pdf": "PDF", "svg": "SVG", "png": "PNG", "csv": "numbers (CSV)"}

_WRAPS: Final = {
    "Results": '<div class="numbers">{}</div>',
    "Figures": '<div class="figures">{}</div>',
    "Limits": '<ul class="limits">{}</ul>',
}
"""HTML around the parts of a chapter that are lists."""


def make_page(
    chapters: Sequence[Chapter], *, title: str, lead: str = "", folders: Mapping[str, str] | None
) -> str:
    """Return the page: an overview and a page of its own for each of several chapters.

    Args:
        chapters: Chapters in their order.
        title: Heading of the page.
        lead: A sentence for the overview.
        folders: Experiment -> relative path from the page to the folder of its figures, which links
            to other formats lead to; None for no links.
    """
    folders = folders or {}
    pages = [_format_chapter(chapter, folders.get(chapter.experiment)) for chapter in chapters]
    several = len(chapters) != 1
    return Template(_read("page.html.tmpl")).substitute(
        title=escape(title),
        style=_read("page.css"),
        script=_read("page.js"),
        contents=_format_contents(chapters) if several else "",
        pages="".join([*([_format_overview(chapters, title, lead)] if several else []), *pages]),
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _format_contents(chapters: Sequence[Chapter]) -> str:
    names = [escape(chapter.experiment) for chapter in chapters]
    links = "".join(f'<a href="#{name}">{name}</a>' for name in names)
    return f'<nav aria-label="Experiments"><a href="#overview">Overview</a>{links}</nav>\n'


def _format_overview(chapters: Sequence[Chapter], title: str, lead: str) -> str:
    cards = "".join(map(_format_card, chapters))
    return (
        '<section class="page" id="overview" data-name="overview">'
        f'<h1>{escape(title)}</h1><p class="lead aside">{escape(lead)}</p>'
        f'<div class="cards">{cards}</div></section>\n'
    )


def _format_card(chapter: Chapter) -> str:
    name, number = escape(chapter.experiment), chapter.headline
    lines = [f'<span class="name">{name}</span>']
    if chapter.lead:
        lead = escape(chapter.lead)
        lines.append(f'<span class="what note" title="{lead}">{lead}</span>')
    if number is not None:
        value, title, note = map(escape, (number.value, number.title, number.note))
        lines.append(f"<strong>{value} <small>{title}</small></strong>")
        lines.append(f'<span class="note" title="{note}">{note}</span>')
    if chapter.warnings:
        counted = "1 warning" if len(chapter.warnings) == 1 else f"{len(chapter.warnings)} warnings"
        text = escape(f"{counted}: {chapter.warnings[0]}")
        lines.append(f'<span class="warning" title="{text}">{text}</span>')
    picture = f'<img alt="" src="{chapter.thumbnail}">' if chapter.thumbnail else ""
    return f'<a class="card {chapter.grade}" href="#{name}" data-item>{picture}{"".join(lines)}</a>'


def _format_chapter(chapter: Chapter, folder: str | None) -> str:
    name = escape(chapter.experiment)
    parts = {
        "Results": "".join(map(_format_number, chapter.numbers)),
        **{table.title: _format_table(table) for table in chapter.results},
        "Figures": "".join(_format_illustration(one, folder) for one in chapter.illustrations),
        **{table.title: _format_table(table) for table in chapter.tables},
        **{snippet.title: _format_snippet(snippet) for snippet in chapter.snippets},
        "Limits": "".join(f"<li data-item>{escape(limit)}</li>" for limit in chapter.limits),
        "Provenance": _format_table(chapter.provenance) if chapter.provenance else "",
    }
    shown = {title: _WRAPS.get(title, "{}").format(text) for title, text in parts.items() if text}
    places = {title: f"{name}:{re.sub('[^a-z]+', '-', title.lower())}" for title in shown}
    links = "".join(f'<a href="#{places[t]}">{escape(t)}</a>' for t in shown)
    return (
        f'<article class="page" id="{name}" data-name="{name}"><h1>{name}</h1>'
        f'<div class="aside">{_format_head(chapter)}<div class="parts">{links}</div></div>'
        + "".join(
            f'<section class="part" id="{places[title]}"><h2>{escape(title)}</h2>{text}</section>'
            for title, text in shown.items()
        )
        + "</article>\n"
    )


def _format_head(chapter: Chapter) -> str:
    lead = f'<p class="lead">{escape(chapter.lead)}</p>' if chapter.lead else ""
    grades = f'<p class="note">{escape(chapter.grades)}</p>' if chapter.grades else ""
    verdict = f'<div class="verdict {chapter.grade}">{escape(chapter.verdict)}{grades}</div>'
    lines = "".join(f"<li>{escape(warning)}</li>" for warning in chapter.warnings)
    warnings = f'<ul class="warnings">{lines}</ul>' if lines else ""
    return f"{lead}{verdict if chapter.verdict else ''}{warnings}"


def _format_number(number: Number) -> str:
    return (
        f'<div class="number" data-item><h3>{escape(number.title)}</h3>'
        f"<strong>{escape(number.value)}</strong>"
        f'<span class="note">{escape(number.note)}</span></div>'
    )


def _format_table(table: Table) -> str:
    note = f'<p class="note aside">{escape(table.note)}</p>' if table.note else ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    body = "".join(_format_row(row, n == table.marked) for n, row in enumerate(table.rows))
    top = f"<tr>{head}</tr>" if head else ""
    # With few columns the last one shrinks with the window; with many all keep their width.
    few = ' class="facts"' if max(map(len, table.rows), default=0) <= _FEW else ""
    return f'{note}<div class="scroll" tabindex="0"><table{few}>{top}{body}</table></div>'


def _format_row(row: Sequence[str], is_marked: bool) -> str:
    best = ' class="best"' if is_marked else ""
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
    return f"<tr data-item{best}>{cells}</tr>"


def _format_illustration(one: Illustration, folder: str | None) -> str:
    title = escape(one.title)
    wide = ' class="wide"' if one.width > _WIDE else ""
    return (
        f'<figure{wide} data-item><button type="button" aria-label="Enlarge: {title}">'
        f'<img alt="{title}" width="{one.width}" height="{one.height}" '
        f'style="width: {one.width / _SCALE:.0f}px" src="{one.picture}"></button>'
        f'<figcaption><b>{title}</b> <span class="category">{escape(one.category)}</span>'
        f"<p>{escape(one.caption)} {_format_links(one, folder)}</p></figcaption></figure>"
    )


def _format_links(one: Illustration, folder: str | None) -> str:
    if folder is None:
        return ""
    by_format = {name.rpartition(".")[2]: name for name in one.files}
    return " · ".join(
        f'<a href="{escape(quote(f"{folder}{by_format[kind]}"))}">{word}</a>'
        for kind, word in _FORMATS.items()
        if kind in by_format
    )


def _format_snippet(snippet: Snippet) -> str:
    note = f'<p class="note">{escape(snippet.note)}</p>' if snippet.note else ""
    return f"<div data-item>{note}<pre>{escape(snippet.code)}</pre></div>"
