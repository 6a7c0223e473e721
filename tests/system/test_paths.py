import pytest

from dpbench.system import paths as resources
from dpbench.system.errors import UserError


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "dpbench"
    folder.mkdir()
    monkeypatch.setattr(resources, "PACKAGE", folder)
    return folder


def test_the_folders_of_a_checkout_are_found():
    root = resources.PACKAGE.parent
    assert resources.conf_folder() == root / "conf"
    assert resources.benchmarks_folder() == root / "benchmarks"


def test_the_folder_inside_the_package_comes_first(package):
    (package / "conf").mkdir()
    (package.parent / "conf").mkdir()
    (package.parent / "pyproject.toml").touch()
    assert resources.conf_folder() == package / "conf"


def test_a_folder_beside_an_installed_package_is_not_used(package):
    (package.parent / "benchmarks").mkdir()
    with pytest.raises(UserError, match=r"benchmarks/ is neither in .* nor in a checkout"):
        resources.benchmarks_folder()
