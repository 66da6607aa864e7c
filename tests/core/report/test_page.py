"""The page: one file, well formed, nothing fetched, everything escaped."""

from html.parser import HTMLParser

from core.report import made_up
from pipeline_core.report.chapter import Chapter
from pipeline_core.report.page import make_page

VOID = {"meta", "img", "link", "input"}


class Page(HTMLParser):
    """Reads a page and checks that every element is closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.words.append(data)

    def find(self, tag, name):
        return [given[name] for t, given in self.elements if t == tag and name in given]


def make(*chapters, folders=None):
    return make_page(chapters, title="What was computed", lead="All of it.", folders=folders or {})


def test_the_page_is_well_formed_and_fetches_nothing():
    text = make(made_up.make_chapter(), made_up.make_chapter("toy/other"))
    page = Page(text)
    assert all(address.startswith("data:image/webp;base64,") for address in page.find("img", "src"))
    assert page.find("script", "src") == []
    assert page.find("link", "href") == ["data:,"]
    assert not [word for word in ("http", "@import", "url(") if word in text]
    # What people wrote is escaped.
    assert "Copper &amp; gold &lt;made up&gt;" in text
    assert "<made up>" not in text


def test_several_chapters_have_an_overview_and_a_menu():
    page = Page(make(made_up.make_chapter(), made_up.make_chapter("toy/other")))
    assert page.find("article", "id") == ["toy/alloy", "toy/other"]
    links = page.find("a", "href")
    assert links[:4] == ["#", "#overview", "#toy/alloy", "#toy/other"]
    cards = [a["href"] for t, a in page.elements if t == "a" and "card" in a.get("class", "")]
    assert cards == ["#toy/alloy", "#toy/other"]
    places = {a["id"] for _, a in page.elements if "id" in a}
    assert {link[1:] for link in links if link.startswith("#")} - places == {""}
    alone = Page(make(made_up.make_chapter()))
    assert alone.find("article", "id") == ["toy/alloy"]
    assert alone.find("nav", "aria-label") == []
    assert not any("card" in name.split() for name in alone.find("a", "class"))
    rows = [attributes for tag, attributes in alone.elements if tag == "tr"]
    assert [row.get("class") for row in rows[:4]] == [None, None, "best", None]


def test_links_lead_to_the_figures_of_each_experiment():
    folders = {"toy/alloy": "my results/toy/alloy/figures/"}
    page = Page(make(made_up.make_chapter(), made_up.make_chapter("toy/other"), folders=folders))
    files = [link for link in page.find("a", "href") if not link.startswith("#")]
    base = "my%20results/toy/alloy/figures"
    assert files[:4] == [f"{base}/parity.{kind}" for kind in ("pdf", "svg", "png", "csv")]
    assert len(files) == 8  # of two figures; the other experiment's are not known


def test_a_chapter_with_a_warning_alone_is_a_page():
    page = Page(make(Chapter(experiment="toy/alloy", warnings=["Nothing there."])))
    assert "Nothing there." in page.words
    assert page.find("section", "id") == []


def test_warnings_are_counted_on_the_overview():
    chapters = [made_up.make_chapter(f"toy/{n}", n_warnings=n) for n in range(3)]
    told = [word for word in Page(make(*chapters)).words if "warning" in word]
    assert told == ["1 warning: Warning 0 of toy/1.", "2 warnings: Warning 0 of toy/2."]
