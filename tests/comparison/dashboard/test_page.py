import base64
import gzip
import hashlib
import json
import re

import msgspec
import pytest

from dpbench.comparison.dashboard.command import packed, page

NASTY = "</script><!--<script>\u2028 & {{library}} {{data}} \\1 \\g<0>"
DATA = {"rows": [NASTY]}


@pytest.fixture(scope="module")
def html():
    return page(DATA, pack({"a": NASTY}), "All.", {})


def pack(value):
    return packed(msgspec.json.encode(value))


def element(html, name):
    return re.search(rf'<script[^>]* id="{name}">(.*?)</script>', html, re.DOTALL)[1]


def opened(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_what_goes_in_is_what_is_in(html):
    assert opened(element(html, "data")) == DATA
    assert opened(element(html, "records")) == {"a": NASTY}


def test_the_page_says_that_it_contains_what_no_epsilon_covers(html):
    said = " ".join(html.split())
    assert (
        "All. No epsilon covers metrics, training losses, diagnostics, checksums and seeds" in said
    )


def unpacked(text):
    return gzip.decompress(base64.b64decode(text)).decode()


def test_only_the_two_scripts_of_ours_may_run(html):
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 1
    scripts.insert(0, unpacked(element(html, "library")))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    allowed = re.search(r"script-src ([^;]+);", policy)[1].split()
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert allowed == [f"'sha256-{value}'" for value in hashes]
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("text", ["</script>", "<!--", "\u2028", "é", '"', "&lt;"])
def test_packed_json_can_end_no_element(text):
    assert opened(pack([text])) == [text]
    assert re.fullmatch(r"[\w+/=]+", pack([text]), re.ASCII)


def test_what_is_no_number_becomes_null():
    html = page({"a": [float("nan"), float("-inf"), 0.1]}, "", "", {})
    assert unpacked(element(html, "data")) == '{"a":[null,null,0.1]}'


def test_the_same_records_give_the_same_bytes_below_three_megabytes(html):
    assert page(DATA, pack({"a": NASTY}), "All.", {}) == html
    assert len(html.encode()) < 3_000_000


def test_nothing_is_fetched_from_elsewhere(html):
    assert not re.search(r'(?:src|href)="(?!data:)', html)
    assert set(re.findall(r"https?://[^\s\"'<]+", html)) <= {"http://www.w3.org/2000/svg"}
