"""Downloads from a server of our own on this machine, and everything that can go wrong."""

import gzip
import hashlib
import io
import lzma
import os
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context

import pytest

from dpbench.learning.data.fetch import download
from dpbench.learning.data.fetch.download import Source, fetch
from dpbench.system.errors import UserError
from dpbench.system.paths import data_folder

CONTENT = bytes(range(256)) * 2000
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        site = self.server
        site.asked.append((self.path, self.headers.get("Range")))
        content = site.files.get(self.path.lstrip("/"))
        if content is None:
            return self.send_error(404)
        begin = self.requested_start() if site.ranges else 0
        if begin and begin >= len(content):
            return self.send_error(416)
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = site.break_off.pop(0) if site.break_off else len(content)
        self.wfile.write(content[begin:end])

    def requested_start(self):
        return int(self.headers.get("Range", "bytes=0-")[6:-1])

    def log_message(self, *args):
        pass


class Site(ThreadingHTTPServer):
    """`files` by name, served with or without `ranges`; each of `break_off` cuts one answer."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.ranges, self.break_off = {}, [], True, []

    def url(self, name):
        return f"http://127.0.0.1:{self.server_port}/{name}"


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Site() as site:
        site.files["file"] = CONTENT
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        site.shutdown()
        thread.join()


def source(*urls, checksum=MD5):
    return Source("set/file", checksum, "https://example.org/page", urls)


def left_in(folder):
    return {path.name for path in (folder / "set").iterdir() if path.suffix != ".lock"}


def test_a_file_is_downloaded_once_and_nothing_else_is_left(site, tmp_path):
    for _ in range(2):
        assert fetch(source(site.url("file")), tmp_path).read_bytes() == CONTENT
    assert site.asked == [("/file", None)]
    assert left_in(tmp_path) == {"file"}


def test_sha256_is_understood(site, tmp_path):
    checksum = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
    assert fetch(source(site.url("file"), checksum=checksum), tmp_path).exists()


def test_a_transfer_that_breaks_off_is_resumed_where_it_stopped(site, tmp_path):
    site.break_off = [1000]
    fetch(source(site.url("file")), tmp_path)
    assert site.asked == [("/file", None), ("/file", "bytes=1000-")]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("left", [CONTENT[:1000], CONTENT, b"stale", b"stale" * 200_000])
def test_leftovers_of_earlier_downloads_are_harmless(site, tmp_path, left, ranges):
    site.ranges = ranges
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.part").write_bytes(left)
    assert fetch(source(site.url("file")), tmp_path).read_bytes() == CONTENT
    assert left_in(tmp_path) == {"file"}


def test_a_mirror_that_keeps_breaking_off_is_left_for_the_next(site, tmp_path):
    site.files["other"] = CONTENT
    site.break_off = [10] * download.ATTEMPTS
    fetch(source(site.url("file"), site.url("other")), tmp_path)
    assert site.asked[-1] == ("/other", "bytes=10-")


@pytest.mark.parametrize("wrong", [b"altered", CONTENT[:-1], b""])
def test_the_next_mirror_is_asked_when_one_has_nothing_or_another_file(site, tmp_path, wrong):
    site.files["wrong"] = wrong
    urls = [site.url(name) for name in ("absent", "wrong", "file")]
    assert fetch(source(*urls), tmp_path).read_bytes() == CONTENT


def test_an_altered_download_is_refused_and_not_kept(site, tmp_path):
    site.files["wrong"] = b"altered"
    with pytest.raises(UserError, match=r"file is missing .* a different file") as error:
        fetch(source(site.url("wrong")), tmp_path)
    assert str(error.value).endswith(f"put the file from {site.url('wrong')} into that folder.")
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize("content", [CONTENT[:-1], b"altered", b""])
def test_a_truncated_or_altered_file_is_refused_with_the_way_out(site, tmp_path, content):
    (tmp_path / "set").mkdir()
    path = tmp_path / "set" / "file"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is truncated or altered: delete it") as error:
        fetch(source(site.url("file")), tmp_path)
    assert str(path) in str(error.value)
    assert path.read_bytes() == content
    assert site.asked == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_regular_files_are_read(make, site, tmp_path):
    (tmp_path / "set").mkdir()
    make(tmp_path / "set" / "file")
    with pytest.raises(UserError, match="is truncated or altered: delete it"):
        fetch(source(site.url("file")), tmp_path)


def test_offline_one_sentence_says_what_to_put_where(tmp_path):
    url = "http://127.0.0.1:9/file"  # the port where nothing listens
    with pytest.raises(UserError) as error:
        fetch(source(url), tmp_path)
    said = str(error.value)
    assert said.startswith(f"file is missing in {tmp_path / 'set'} (not downloaded from {url}, ")
    assert said.endswith(f"put the file from {url} into that folder.")
    assert "\n" not in said


def test_a_folder_that_cannot_be_written_is_named(site, tmp_path):
    (tmp_path / "folder").write_text("a file in its place")
    with pytest.raises(UserError, match="folder/set/file cannot be written") as error:
        fetch(source(site.url("file")), tmp_path / "folder")
    assert "DPBENCH_DATA" in str(error.value)


def zipped(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("inner", content)
    return stream.getvalue()


PACKED = {"f.gz": gzip.compress(CONTENT), "f.xz": lzma.compress(CONTENT), "f.zip": zipped(CONTENT)}


def address(site, name):
    return site.url(name) + ("#inner" if name.endswith("zip") else "")


@pytest.mark.parametrize("name", PACKED)
def test_archives_are_unpacked_into_place(site, tmp_path, name):
    site.files.update(PACKED)
    site.break_off = [20]
    assert fetch(source(address(site, name)), tmp_path).read_bytes() == CONTENT
    assert left_in(tmp_path) == {"file"}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("broken", [b"no archive", b"", None])
def test_a_broken_archive_is_refused(site, tmp_path, name, broken):
    site.files[name] = PACKED[name][:50] if broken is None else broken
    with pytest.raises(UserError, match="a different file than expected"):
        fetch(source(address(site, name)), tmp_path)


def test_an_archive_without_the_member_is_refused(site, tmp_path):
    site.files["f.zip"] = PACKED["f.zip"]
    with pytest.raises(UserError, match="a different file than expected"):
        fetch(source(site.url("f.zip#other")), tmp_path)


@pytest.mark.parametrize("name", PACKED)
def test_an_archive_put_there_by_hand_needs_no_network(site, tmp_path, name):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / name).write_bytes(PACKED[name])
    assert fetch(source(address(site, name)), tmp_path).read_bytes() == CONTENT
    assert site.asked == []


def test_a_broken_archive_put_there_by_hand_is_named(site, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "f.gz").write_bytes(PACKED["f.gz"][:50])
    with pytest.raises(UserError, match=r"f\.gz is truncated or altered"):
        fetch(source(site.url("f.gz")), tmp_path)


def test_threads_at_once_download_once(site, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(source(site.url("file")), tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert len(site.asked) == 1


@pytest.mark.slow
def test_processes_at_once_download_once(site, tmp_path):
    with get_context("spawn").Pool(2) as pool:
        pool.starmap(fetch, [(source(site.url("file")), tmp_path)] * 2)
    assert len(site.asked) == 1


def test_only_a_transfer_on_a_terminal_shows_a_bar(site, tmp_path, monkeypatch, capsys):
    fetch(source(site.url("file")), tmp_path / "silent")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # how rich is told that this is a terminal
    fetch(source(site.url("file")), tmp_path / "shown")
    assert "file" in capsys.readouterr().err


def test_the_folder_is_named_by_the_environment_or_is_the_users_cache(monkeypatch):
    monkeypatch.setenv("DPBENCH_DATA", "~/somewhere")
    assert data_folder().name == "somewhere"
    assert "~" not in str(data_folder())
    monkeypatch.delenv("DPBENCH_DATA")
    assert data_folder().name == "dpbench"
