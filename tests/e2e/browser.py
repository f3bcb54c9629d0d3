"""Debian's Chromium without a window, driven as somebody would use it."""

import os
import re
import shutil

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.e2e.watch import until

PAGE_S = 20.0
"""How long a page may take to show what it is to show; far beyond what it takes."""

FLAGS = ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1500,1100")
WAITING = re.compile(r"\bloading", re.IGNORECASE)


class Browser:
    """One window. Use it in a ``with`` statement."""

    def __init__(self) -> None:
        found = [shutil.which(name) for name in ("chromium", "chromedriver")]
        assert all(found), "no Chromium: these tests open pages in Debian's (scripts/chromium.sh)"
        options = webdriver.ChromeOptions()
        options.binary_location = str(found[0])
        for flag in FLAGS:
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium has none for the superuser
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self._driver = webdriver.Chrome(options, Service(found[1]))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.quit()

    @property
    def text(self) -> str:
        """All text on the page."""
        return self._driver.find_element(By.TAG_NAME, "body").text

    @property
    def address(self) -> str:
        """Where it is, behind the number sign."""
        return self._driver.current_url.partition("#/")[2]

    def open(self, url: str, *expected: str) -> None:
        """Open a page; returns once it shows these texts, and waits for nothing."""
        self._driver.get(url)
        self.wait(f"{url} shows {expected}", *expected)

    def wait(self, what: str, *expected: str) -> None:
        """Wait until the page shows these texts, and nothing that turns or loads."""
        seen = ""

        def shown() -> bool:
            nonlocal seen
            try:
                seen = self.text
                turning = self._driver.find_elements(By.CSS_SELECTOR, ".ant-spin-spinning")
            except StaleElementReferenceException:
                return False
            whole = all(text in seen for text in expected)
            return whole and not turning and not WAITING.search(seen)

        try:
            until(shown, what, PAGE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{seen}") from error

    def click(self, text: str, *, within: str = "") -> None:
        """Click what has this text, as soon as there is one. within: an element around it."""
        inner = f"//{within}//*" if within else "//*"
        at = f"{inner}[self::a or self::button or self::span][normalize-space()='{text}']"

        def clicked() -> bool:
            for found in self._driver.find_elements(By.XPATH, at):
                if found.is_displayed():
                    found.click()
                    return True
            return False

        until(clicked, f"'{text}' can be clicked", PAGE_S)

    def choose(self, label: str, option: str) -> None:
        """Choose an option of the list that has this label."""
        of_label = f"//label[starts-with(normalize-space(),'{label}')]"
        at = f"{of_label}//option[normalize-space()='{option}']"

        def chosen() -> bool:
            try:
                self._driver.find_element(By.XPATH, at).click()
            except StaleElementReferenceException:
                return False
            return True

        until(chosen, f"'{option}' can be chosen", PAGE_S)

    def fill(self, selector: str, text: str) -> None:
        """Type a text into the one field that a selector of CSS finds."""
        [field] = self._driver.find_elements(By.CSS_SELECTOR, selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    def focus(self, selector: str) -> None:
        """Give the first element that a selector of CSS finds the focus, without a click."""
        script = "document.querySelector(arguments[0]).focus()"
        self._driver.execute_script(script, selector)  # type: ignore[no-untyped-call]

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        self._driver.switch_to.active_element.send_keys(key)

    @property
    def focused(self) -> str:
        """What is said of the element that has the focus; its text if nothing else is."""
        focused = self._driver.switch_to.active_element
        return focused.get_attribute("aria-label") or focused.text

    def texts(self, selector: str) -> list[str]:
        """Text of each element that a selector of CSS finds."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return self._driver.execute_script(script, selector)  # type: ignore[no-any-return,no-untyped-call]

    def labels(self, selector: str) -> list[str]:
        """What is said of each element that a selector of CSS finds, for those who do not see."""
        found = self._driver.find_elements(By.CSS_SELECTOR, selector)
        return [each.get_attribute("aria-label") or "" for each in found]

    def toasts(self) -> list[str]:
        """Messages that have popped up."""
        return self.texts(".ant-notification-notice")

    def errors(self) -> list[str]:
        """Errors on the console since the last call."""
        entries = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
