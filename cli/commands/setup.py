"""`massgend setup`: the keys of model providers: where they lie, whether they work, and a place for new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cli.client import Client

PROVIDER = "anthropic"


def setup(
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="Whose key: anthropic, openai, gemini ...")
    ] = PROVIDER,
    check: Annotated[bool, typer.Option("--test", help="Only test the key that is there.")] = False,
) -> None:
    """Give massgend a provider's key, test it, and see where keys lie.

    Keys stay in the daemon; no sandbox ever holds one. Those in your
    environment (ANTHROPIC_API_KEY ...) are used by `massgend run` without this.

    \b
    Examples:
      massgend setup
      massgend setup openai
      massgend setup --test
    """
    import sys

    from cli.session import offer_environment, opened

    with opened() as client:
        offer_environment(client)
        _list(client)
        if not check and sys.stdin.isatty() and sys.stdout.isatty():
            _ask(client, provider)
        elif any(key.provider == provider for key in client.keys().keys):
            _test(client, provider)
        else:
            print(f"There is no key for {provider}: run massgend setup in a terminal, or set it in the environment.")
            raise typer.Exit(2)


def _list(client: Client) -> None:
    from cli.text import clean

    found = client.keys()
    for key in found.keys:
        trouble = f"  ({clean(key.problem)})" if key.problem else ""
        print(f"{key.provider:<12}{clean(key.where)}, for {clean(key.base_url)}{trouble}")
    if not found.keys:
        print(f"No keys yet. Looked in the environment and in {found.file}.")


def _ask(client: Client, provider: str) -> None:
    """The key is tested from memory first, and written only when it works or the user wants it all the same."""
    key = typer.prompt(
        f"Key for {provider} (not shown; empty to leave)", default="", hide_input=True, show_default=False
    )
    if not key.strip():
        return
    client.give_key(provider, key.strip(), save=False)
    works = _test(client, provider)
    file = client.keys().file
    if typer.confirm(f"Write it to {file} (only you can read it)?", default=works):
        client.give_key(provider, key.strip(), save=True)
        print(f"It lies in {file}.")
    elif works:
        print("It is kept in the daemon's memory until massgend down.")
    else:
        client.withdraw_key(provider)
        print("It was not kept.")


def _test(client: Client, provider: str) -> bool:
    from cli.text import clean

    tested = client.test_key(provider)
    print(f"{'works' if tested.works else 'does not work'}: {clean(tested.detail)}")
    return tested.works
