"""Reads a page as a browser would: what closes, what it says, where it leads."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Checks that tags close in order; collects tags, text and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.words, self.rows, self.ids = [], [], [], 0, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.addresses += [values[name] for name in ("href", "src") if values.get(name)]
        self.ids += [values["id"]] if "id" in values else []
        self.rows += tag == "tr" and "'sortable'" in str(self.open)
        if tag not in VOID:
            self.open.append((tag, values.get("class")))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][0] not in {"style", "script"}:
            self.words.append(data.strip())

    @property
    def text(self):
        return " ".join(word for word in self.words if word)
