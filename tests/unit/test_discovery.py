"""Where state, sockets and engines are found."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from massgend.discovery import MAX_SOCKET_PATH, find_engine, find_places
from massgend.settings import SettingsError, load_settings


def test_the_state_lies_where_it_is_told_else_in_the_users_state_folder(tmp_path: Path) -> None:
    assert find_places({"MASSGEND_STATE": str(tmp_path)}).state == tmp_path
    assert find_places({"XDG_STATE_HOME": "/x"}).state == Path("/x/massgend")
    assert find_places({"HOME": "/home/una"}).state == Path("/home/una/.local/state/massgend")


def test_a_state_folder_with_a_long_path_gets_short_sockets_that_no_other_state_has() -> None:
    one = find_places({"MASSGEND_STATE": "/" + "x" * 200, "XDG_RUNTIME_DIR": "/run/user/1000"})
    two = find_places({"MASSGEND_STATE": "/" + "y" * 200, "XDG_RUNTIME_DIR": "/run/user/1000"})

    assert len(os.fsencode(one.api_socket)) <= MAX_SOCKET_PATH + 17
    assert one.sockets != two.sockets


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
