"""The web page in a browser, and what a reader does with it."""

IDLE = "!document.body.classList.contains('busy') && !document.querySelector('.assistant[aria-busy]')"


class Page:
    def __init__(self, browser, url):
        self.browser = browser
        self.url = url

    def open(self, forget=True):
        self.browser.go(self.url)
        if forget:
            self.browser.run("localStorage.clear(); sessionStorage.clear();")
            self.browser.go(self.url)
        self.browser.wait("document.getElementById('model').textContent !== ''")

    def say(self, text, wait=True):
        if "\n" in text:  # which would send, typed
            self.browser.run("document.getElementById('prompt').value = arguments[0]", text)
        else:
            self.browser.type("#prompt", text)
        self.browser.click("#send")
        if wait:
            self.wait_for_answer()

    def wait_for_answer(self):
        self.browser.wait("document.querySelector('.assistant') && " + IDLE)

    def user_texts(self):
        return self.browser.texts(".user .bubble")

    def answers(self):
        return self.browser.texts(".assistant > .md")

    def set(self, **fields):
        self.browser.click("#settings")
        for name, value in fields.items():
            self.browser.type(f"#settings-dialog [name={name}]", value)
        self.browser.click("#settings-dialog .primary")
        self.browser.wait("!document.querySelector('dialog[open]')")
