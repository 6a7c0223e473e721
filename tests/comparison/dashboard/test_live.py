"""What is under way: sweeps with their progress and failures, and the page that follows them."""

import http.client
import os
import socket
import struct
import threading
import time

import pytest

from dpbench.comparison.dashboard.command import page_of, report
from dpbench.comparison.dashboard.watch import WatchServer, live
from dpbench.system.files import write_atomically


@pytest.fixture
def sweep(record_of, folder_of):
    """A sweep of three runs, of which one has ended, one is running and one is missing; another
    one that failed, and a run that was killed."""
    record = record_of()
    folder = folder_of([record])
    digests = [record.digest, "b" * 16, "c" * 16]
    write_atomically(folder / "sweeps/run-1.txt", "".join(f"{d}\n" for d in digests).encode())
    for digest in ("b" * 16, "d" * 16):
        write_atomically(folder / "checkpoints" / digest / "steps", b"30 100")
    os.utime(folder / "checkpoints" / ("d" * 16) / "steps", (time.time() - 300,) * 2)
    write_atomically(folder / "failures/run-2.txt", b"dpbench run epochs=9\nout of <memory>\n")
    return folder, record


def test_a_sweep_has_its_progress_and_its_failures(sweep):
    folder, record = sweep
    failed, under_way = live(folder, {record.digest})
    assert (under_way["name"], under_way["done"], under_way["total"]) == ("run-1", 1, 3)
    assert under_way["running"] == [("b" * 16, 30, 100)]
    assert (failed["name"], failed["failed"].splitlines()[1]) == ("run-2", "out of <memory>")


def test_a_finished_sweep_and_killed_runs_are_not_under_way(sweep):
    folder, record = sweep
    (folder / "failures/run-2.txt").unlink()
    assert live(folder, {record.digest, "b" * 16, "c" * 16}) == []


@pytest.mark.slow
def test_the_page_shows_what_is_under_way(sweep, opened):
    folder, _ = sweep
    window = opened(report([f"results_dir={folder}", f"out={folder / 'r.html'}"]), pictures=False)
    said = window.inner_text("#part-live")
    assert "1 of 3 runs finished, 1 running, 1 missing" in said
    assert "step 30 of 100" in said
    window.locator("#part-live summary", has_text="What failed").click()
    assert "out of <memory>" in window.inner_text("#part-live pre")


def test_nothing_is_under_way_in_a_folder_of_records(record_of, page_of, opened):
    assert opened(page_of([record_of()]), pictures=False).locator("#part-live").count() == 0


@pytest.fixture
def served(sweep):
    folder, _ = sweep
    calls = []

    def make():
        calls.append(1)
        return page_of(folder, watch=True)

    with WatchServer(make, folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, folder, calls
        server.shutdown()


def asked(server, host=None, path="/"):
    """The status and the text of an answer. host: by which name the server is asked."""
    line = http.client.HTTPConnection(*server.server_address, timeout=30)
    line.request("GET", path, headers={"Host": host} if host else {})
    answer = line.getresponse()
    return answer.status, answer.read().decode()


def test_the_server_is_for_this_machine_and_this_page_alone(served):
    server, _, calls = served
    assert server.server_address[0] == "127.0.0.1"
    assert asked(server, host="evil.example")[0] == 404
    assert asked(server, path="/etc/passwd")[0] == 404
    assert calls == []


def test_the_page_is_made_anew_after_a_change_and_only_then(served, record_of):
    server, folder, calls = served
    first, again = asked(server), asked(server)
    assert first == again
    assert (first[0], len(calls)) == (200, 1)
    write_atomically(folder / "runs/x.json", b"{}")
    os.utime(folder / "runs", (1, 1))
    with pytest.warns(UserWarning, match="left out"):
        assert asked(server)[0] == 200
    assert len(calls) == 2


def test_a_folder_without_a_record_is_waited_for(tmp_path):
    (tmp_path / "runs").mkdir()
    server = WatchServer(lambda: page_of(tmp_path), tmp_path)
    server.server_close()
    assert "there is no record in" in server.page()


def test_the_name_of_a_file_is_no_script(tmp_path):
    write_atomically(tmp_path / "runs/<img src=x onerror=alert(1)>.json", b"{")
    with WatchServer(lambda: page_of(tmp_path), tmp_path) as server:
        said = server.page()
    assert "such as runs/&lt;img src=x" in said
    assert "<img" not in said


def test_an_unused_connection_holds_nobody_up(served):
    server, *_ = served
    with socket.create_connection(server.server_address):
        assert asked(server)[0] == 200


def test_a_browser_that_goes_away_is_not_reported(served, capsys):
    server, *_ = served
    with socket.create_connection(server.server_address) as gone:
        gone.sendall(f"GET / HTTP/1.0\r\nHost: {server.address[7:-1]}\r\n\r\n".encode())
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    assert asked(server)[0] == 200
    assert capsys.readouterr().err == ""
