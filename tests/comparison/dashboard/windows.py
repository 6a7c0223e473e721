"""What an open page shows."""

import json
import re


def numbers(window, part="utility", place=0):
    """The lines of the table behind a picture: name, epsilon, delta, guarantee, value."""
    details = window.locator(f"#part-{part} .numbers").nth(place)
    if details.get_attribute("open") is None:
        details.locator("summary").click()
    details.locator("table").wait_for()
    rows = details.locator("tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in rows]


def drawn(window, part):
    """How many points and bars the pictures of a part show."""
    window.locator(f"#part-{part}").scroll_into_view_if_needed()
    window.wait_for_selector(f"#part-{part} .picture .main-svg")
    return window.locator(f"#part-{part} .picture path.point, #part-{part} .point path").count()


def wait_for_pictures(window, within="body"):
    """Wait until no picture there is without its drawing; the page allows no script to ask."""
    window.wait_for_selector(f"{within} .picture:not(:has(.main-svg))", state="detached")


def shown_record(window):
    window.locator("#detail pre", has_text='"config"').wait_for()
    text = window.inner_text("#detail pre")
    return {
        "digest": re.search("run=([0-9a-f]+)", window.evaluate("location.hash"))[1],
        "record": json.loads(text.replace("NaN", "null")),
        "command": "".join(window.locator("#detail .command code").all_inner_texts()),
    }


def board(window):
    """The lines of the first view: method, significance and accuracy."""
    rows = window.locator("#part-board tbody tr").all()
    return {
        row.locator(".method .link").inner_text(): (
            row.locator("td").first.inner_text(),
            row.locator(".standing").inner_text(),
            row.locator(".estimate b").first.inner_text(),
        )
        for row in rows
    }
