"""`elf serve` and `elf accounts`: the page for others, and who they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from app.accounts import AccountFile, check_name, default_file
from app.cli_edit import default_backend, write
from elf_engine.errors import ElfError

_file_option = click.option(
    "--file", type=click.Path(path_type=Path), help="Default: accounts in the ELF_HOME directory."
)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=7860, show_default=True)
@click.option("--model", "-m", default="starter", show_default=True, help="Name or directory.")
@click.option("--backend", type=click.Choice(["jax", "torch"]), help="Default: what is there.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option(
    "--accounts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="People log in; made by `elf accounts`. Everyone sees their own history only.",
)
@click.option(
    "--proxy-user-header",
    default="",
    metavar="NAME",
    help="A proxy logs people in and names them in this header, such as X-Forwarded-User.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="IP",
    help="Address the proxy calls from; repeatable. Default: this machine.",
)
def serve(backend: str | None, no_browser: bool, **given: Any) -> None:
    """Serve the page, on this machine alone unless --host says otherwise.

    Another --host needs the environment variable ELF_PASSWORD, --accounts or --proxy-user-header.
    """
    try:
        from app.server import Door
        from app.server import serve as serve_page
    except ImportError as error:
        raise ElfError(f"the page needs {error.name}; pip install -e '.[app]'") from error
    door = Door(
        accounts=given.pop("accounts"),
        password=os.environ.get("ELF_PASSWORD", ""),
        proxy_header=given.pop("proxy_user_header"),
        proxies=given.pop("proxies"),
    )
    serve_page(
        **given, backend=backend or default_backend(), open_browser=not no_browser, door=door
    )


@click.group()
def accounts() -> None:
    """Who may use a served page."""


@accounts.command("add")
@click.argument("name")
@click.password_option(help="Asked for when it is not given.")
@_file_option
def add(name: str, password: str, file: Path | None) -> None:
    """Add the account NAME, or give it another password."""
    found = AccountFile(file or default_file())
    new = found.set(check_name(name), password)
    write(f"{'added' if new else 'changed'} {name} in {found.path}\n")


@accounts.command("list")
@_file_option
def list_accounts(file: Path | None) -> None:
    """The names, one a line."""
    for name in AccountFile(file or default_file()).read():
        write(f"{name}\n")


@accounts.command("remove")
@click.argument("name")
@_file_option
def remove(name: str, file: Path | None) -> None:
    """Take the account NAME away; who is logged in with it is logged out."""
    AccountFile(file or default_file()).remove(name)
