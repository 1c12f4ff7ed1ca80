"""clew completion: what a shell needs to complete commands and options."""

from __future__ import annotations

import click

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL: commands and options complete with Tab.

    Example: clew completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    from clew.cli import app

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(app, {}, "clew", "_CLEW_COMPLETE").source())
