"""`tocsin migrate`: brings a store to this version's schema, which a start of the server does by itself too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tocsin.cli import output
from tocsin.cli.output import Json

Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The file of settings.", show_default="tocsin.toml if it is there")
]
Data = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The data folder.")]


def migrate(config: Config = None, data: Data = None, json: Json = False) -> None:
    """Bring the store to this version's schema. Make a copy of the data folder before an upgrade."""
    from tocsin.cli.offline import on_store, settings_for

    settings = settings_for(config, data)
    # Opening a store migrates it under a lock, and refuses one that is newer than this version.
    on_store(settings, lambda store: store.ping(), make=True)
    if json:
        output.as_json({"store": settings.shown_store, "migrated": True})
    else:
        print(f"{settings.shown_store} has the schema of this version")
