"""The report in a browser, on a telephone and on a screen, by day and by night."""

import re
import shutil

import pytest

from core.report import made_up
from pipeline_core.report.collect import find_figures, write_report
from tiers import exhaustive

pytestmark = pytest.mark.slow

EXPERIMENTS = [f"toy/experiment_{number}" for number in range(6)]
SCREENS = {390: 844, 1280: 857, 1400: 857}
"""Widths and heights, CSS pixels."""


@pytest.fixture(scope="module")
def browser():
    """Return Chromium of the system; playwright brings none of its own."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the address of a report of six experiments."""
    results = made_up.write_chapters(tmp_path_factory.mktemp("results"), *EXPERIMENTS)
    write_report(results / "report.html", find_figures(results))
    return (results / "report.html").as_uri()


@pytest.fixture
def visit(browser, report):
    """Return a function that opens the report; its end says that the console stayed empty."""
    complaints, contexts = [], []

    def open_page(width=1400, scheme="light", **more):
        size = {"width": width, "height": SCREENS[width]}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme, **more))
        contexts[-1].set_default_timeout(120_000)  # ms: of a busy machine
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("data:", report)) or
                complaints.append(f"asks for {request.url}"))  # fmt: skip
        page.goto(report)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def wait_for_title(page, title):
    """Wait until one heading of a chapter is shown, and it is this one."""
    page.wait_for_function(
        """title => {
            const shown = [...document.querySelectorAll("h1")].filter((h1) => h1.offsetParent);
            return shown.length === 1 && shown[0].innerText === title;
        }""",
        arg=title,
    )


def check_view(page, heading):
    """Check that a heading is in view, nothing wider than the window, and no picture cut off.

    A browser follows a link to a part of its page some time after the click, so the heading is
    waited for.
    """
    heading.wait_for()
    page.wait_for_function(
        """node => {
            const { top, bottom } = node.getBoundingClientRect();
            return 0 <= top && bottom <= innerHeight;
        }""",
        arg=heading.element_handle(),
    )
    width, height = page.viewport_size["width"], page.viewport_size["height"]
    box = heading.bounding_box()
    assert 0 <= box["x"] <= box["x"] + box["width"] <= width
    assert 0 <= box["y"] <= box["y"] + box["height"] <= height
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for picture in page.locator("img:visible").all():
        box = picture.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")


@exhaustive
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SCREENS)
def test_every_section_can_be_read(visit, width, scheme, tmp_path):
    page = visit(width, scheme)
    check_view(page, page.locator("#overview h1"))
    assert page.evaluate("document.documentElement.scrollHeight") <= SCREENS[width]
    for card in page.locator(".card").all():
        words = card.inner_text()
        assert "21.3 ± 0.4 meV/Å" in words
        assert "2 warnings" in words
        assert card.locator("img").is_visible()
    page.screenshot(path=tmp_path / "overview.png")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 3 * 128) == (scheme == "dark")
    for number, name in enumerate(EXPERIMENTS):
        page.locator("nav a", has_text=name).click()
        article = page.locator(f'article[id="{name}"]')
        check_view(page, article.locator("h1"))
        assert page.locator(".page:visible").count() == 1
        for link in article.locator(".parts a").all() if number == 0 else []:
            title = link.text_content()
            link.click()
            check_view(page, article.locator("h2", has_text=re.compile(f"^{title}$")))
            page.screenshot(path=tmp_path / f"{title}.png")
            page.evaluate("scrollTo(0, 0)")
    assert len(list(tmp_path.glob("*.png"))) == 8


def test_a_card_leads_to_its_experiment_and_the_title_back(visit):
    page = visit()
    page.locator(".card", has_text="experiment_3").click()
    wait_for_title(page, "toy/experiment_3")
    page.locator("header .title").click()
    wait_for_title(page, "What was computed")
    page.go_back()
    wait_for_title(page, "toy/experiment_3")


@exhaustive
def test_the_search_leaves_what_holds_all_words_on_all_pages(visit):
    page = visit(390)
    page.locator("#search").fill("PARITY experiment_2")
    titles = page.locator("figure:visible b").all_inner_texts()
    assert titles == ["Of parity"]
    assert page.locator("article:visible h1").all_inner_texts() == ["toy/experiment_2"]
    assert page.locator("#found").inner_text() == "1 found"
    page.locator("#search").fill("cutoff")
    assert page.locator("tr[data-item]:visible").all_inner_texts() == ["Cutoff\t4.5 Å"] * 6
    page.locator("#search").fill("no such word")
    assert page.locator("#found").inner_text() == "nothing found"
    assert page.locator("[data-item]:visible").count() == 0
    page.locator("#search").fill("")
    wait_for_title(page, "What was computed")
    assert page.locator(".card:visible").count() == 6


@exhaustive
def test_a_link_ends_a_search(visit):
    page = visit()
    page.locator("#search").fill("parity")
    page.locator("nav a", has_text="experiment_1").click()
    wait_for_title(page, "toy/experiment_1")
    assert page.locator("#search").input_value() == ""
    assert page.locator("article:visible tr").first.is_visible()


def read_transform(page):
    """Return place and scale of the picture on the stage."""
    text = page.locator(".stage img").evaluate("image => image.style.transform")
    return tuple(map(float, re.findall(r"-?[\d.]+(?:e-?\d+)?", text)))


def wait_for_transform(page, before):
    """Wait until the picture on the stage has left a place and scale."""
    page.wait_for_function(
        "old => document.querySelector('.stage img').style.transform !== old",
        arg=f"translate({before[0]}px, {before[1]}px) scale({before[2]})",
    )


def enlarge(page):
    """Open the first figure of the first experiment in the viewer; return where it fits."""
    page.locator("nav a", has_text=EXPERIMENTS[0]).click()
    wait_for_title(page, EXPERIMENTS[0])
    page.locator("figure:visible button").first.click()
    page.locator("#viewer[open]").wait_for()
    stage, picture = (page.locator(f).bounding_box() for f in (".stage", ".stage img"))
    assert picture["width"] <= stage["width"] + 1
    assert picture["height"] <= stage["height"] + 1
    return read_transform(page)


@exhaustive
def test_a_figure_is_enlarged_by_wheel_keys_and_double_click(visit, tmp_path):
    page = visit()
    x, y, scale = enlarge(page)
    page.mouse.move(300, 400)
    page.mouse.wheel(0, -600)
    wait_for_transform(page, (x, y, scale))
    left, top, larger = read_transform(page)
    assert larger > 2 * scale
    # What was under the mouse stays there; the stage begins below the tools.
    begin = page.locator(".stage").bounding_box()["y"]
    assert (300 - x) / scale == pytest.approx((300 - left) / larger, rel=0.01)
    assert (400 - begin - y) / scale == pytest.approx((400 - begin - top) / larger, rel=0.01)
    page.mouse.down()
    page.mouse.move(250, 380)
    page.mouse.up()
    assert read_transform(page)[:2] == pytest.approx((left - 50, top - 20))
    page.screenshot(path=tmp_path / "viewer.png")
    page.mouse.dblclick(300, 400)
    assert read_transform(page) == pytest.approx((x, y, scale))
    page.mouse.dblclick(300, 400)
    assert read_transform(page)[2] == pytest.approx(3 * scale)
    page.keyboard.press("0")
    page.keyboard.press("+")
    assert read_transform(page)[2] == pytest.approx(1.5 * scale)
    page.locator("button", has_text="Fit").click()
    assert read_transform(page)[2] == pytest.approx(scale)
    page.keyboard.press("Escape")
    assert not page.locator("#viewer").is_visible()


@exhaustive
def test_a_figure_is_enlarged_by_two_fingers(visit):
    page = visit(390, has_touch=True, is_mobile=True)
    *_, scale = fitted = enlarge(page)
    session = page.context.new_cdp_session(page)

    def touch(kind, *points):
        told = [{"x": x, "y": 400, "id": number} for number, x in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": told})

    touch("touchStart", 170, 220)
    touch("touchMove", 120, 270)
    touch("touchEnd")
    wait_for_transform(page, fitted)
    assert read_transform(page)[2] == pytest.approx(3 * scale, rel=0.01)  # from 50 to 150 apart


def test_the_report_can_be_read_without_its_script(visit):
    page = visit(java_script_enabled=False)
    assert page.locator("article:visible").count() == len(EXPERIMENTS)
    assert page.locator("figure:visible img").count() == 2 * len(EXPERIMENTS)
