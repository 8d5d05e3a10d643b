"""The image massgend/sandbox, run as hardened as a sandbox is: whom the agent is there and what it finds."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import docker
import pytest

from tests.support.sandbox_engine import IMAGE, endpoint
from tests.support.scripts import SCRIPTS, run

pytestmark = pytest.mark.docker

TOOLS = (
    "bash cc c++ curl diff fd file find g++ gcc git git-lfs jq less make node npm npx patch pip pip3 ps pytest-3 python"
    " python3 rg sqlite3 tar unzip xz zip"
)


@pytest.fixture
def client() -> Iterator[docker.DockerClient]:
    opened = docker.DockerClient(base_url=endpoint())
    yield opened
    opened.close()


def inside(client: docker.DockerClient, script: str, image: str = IMAGE) -> str:
    """What the script prints in a throw-away container; it raises when the script fails."""
    printed: bytes = client.containers.run(
        image,
        ["bash", "-euc", script],
        remove=True,
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "mode=1777,exec"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
    )
    return printed.decode().strip()


def test_the_agent_is_a_real_user_with_a_name_and_a_home(client: docker.DockerClient) -> None:
    assert inside(client, "id -u; id -g; whoami; echo $HOME; getent passwd agent").splitlines() == [
        "1000",
        "1000",
        "agent",
        "/home/agent",
        "agent:x:1000:1000::/home/agent:/bin/bash",
    ]


def test_the_agent_owns_the_workspace_it_starts_in(client: docker.DockerClient) -> None:
    assert inside(client, "pwd; stat -c %U /workspace /home/agent").split() == ["/workspace", "agent", "agent"]


def test_the_usual_tools_are_on_the_path(client: docker.DockerClient) -> None:
    assert inside(client, f"for tool in {TOOLS}; do type -P $tool >/dev/null || echo $tool; done") == ""


def test_names_that_are_not_ascii_are_read_and_printed(client: docker.DockerClient) -> None:
    assert inside(
        client, "cd /tmp; touch 'grüße 漢'; ls; python3 -c 'import os; print(os.listdir())'"
    ).splitlines() == [
        "grüße 漢",
        "['grüße 漢']",
    ]


def test_a_c_program_and_a_virtual_environment_can_be_made(client: docker.DockerClient) -> None:
    script = """
        cd /tmp
        echo 'int main(void) { return 42; }' >a.c; make -s a; ./a || echo $?
        python3 -m venv v; v/bin/python -c 'import pip; print("pip")'
        node -e 'console.log(6 * 7)'
    """
    assert inside(client, script).split() == ["42", "pip", "42"]


def test_the_agents_clients_are_there(client: docker.DockerClient) -> None:
    assert inside(client, "for name in answer vote; do test -x $(type -P massgend-$name); done; echo both") == "both"


def test_the_image_carries_no_package_lists_or_logs(client: docker.DockerClient) -> None:
    left = "find /var/lib/apt/lists /var/cache/apt /var/log -type f | head -3"
    assert inside(client, left) == ""


def test_the_image_says_what_it_is(client: docker.DockerClient) -> None:
    labels = client.images.get(IMAGE).labels
    assert labels["org.opencontainers.image.title"] == "massgend sandbox"
    assert labels["org.opencontainers.image.version"]
    assert not [name for name in labels if name.startswith("massgend.")], "those mark containers and volumes as ours"


def test_a_current_image_is_not_built_again(client: docker.DockerClient) -> None:
    run(sys.executable, SCRIPTS / "image", "ensure", timeout_s=170, DOCKER_HOST=endpoint())
    before = client.images.get(IMAGE).id
    done = run(sys.executable, SCRIPTS / "image", "ensure", DOCKER_HOST=endpoint())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert client.images.get(IMAGE).id == before


def test_no_engine_is_one_sentence(client: docker.DockerClient) -> None:
    done = run(sys.executable, SCRIPTS / "image", "ensure", DOCKER_HOST="unix:///nowhere.sock")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "unix:///nowhere.sock, which does not answer" in done.stderr
