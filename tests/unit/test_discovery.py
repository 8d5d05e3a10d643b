"""Where state, sockets and engines are found."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from massgend.discovery import find_engine, find_places, socket_address
from massgend.settings import SettingsError, load_settings


def test_the_state_lies_where_it_is_told_else_in_the_users_state_folder(tmp_path: Path) -> None:
    assert find_places({"MASSGEND_STATE": str(tmp_path)}).state == tmp_path
    assert find_places({"XDG_STATE_HOME": "/x"}).state == Path("/x/massgend")
    assert find_places({"HOME": "/home/una"}).state == Path("/home/una/.local/state/massgend")


def test_a_socket_at_a_path_that_is_too_long_can_be_bound_and_reached_where_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(socket_address(folder / "api.sock"))
        listener.listen()
        caller.connect(socket_address(folder / "api.sock"))

    assert (folder / "api.sock").is_socket()


def test_sockets_lie_in_the_state_folder_however_long_its_path_is() -> None:
    places = find_places({"MASSGEND_STATE": "/" + "x" * 200, "XDG_RUNTIME_DIR": "/run/user/1000"})

    assert places.sockets.parent == places.state


def test_a_chosen_engine_is_taken_as_it_is() -> None:
    assert find_engine({"DOCKER_HOST": "tcp://10.0.0.1:2375"}) == "tcp://10.0.0.1:2375"


def test_a_socket_on_which_nobody_listens_is_passed_over(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "docker.sock"))
    dead.close()

    assert find_engine({"XDG_RUNTIME_DIR": str(tmp_path)}) != f"unix://{tmp_path}/docker.sock"


def test_a_wrong_setting_is_refused_with_its_name_and_what_is_allowed() -> None:
    with pytest.raises(SettingsError, match="MASSGEND_ENGINE_THREADS=many is not a whole number from 1 to 256"):
        load_settings({"MASSGEND_ENGINE_THREADS": "many"})
    with pytest.raises(SettingsError, match="MASSGEND_LOG_LEVEL=LOUD is not one of DEBUG"):
        load_settings({"MASSGEND_LOG_LEVEL": "loud"})
