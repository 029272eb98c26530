"""The tables of the newest schema, as `app.migrations` makes them.

`requests` are read strictly (`from_dict`): a field of EditRequest or SampleSpec that is renamed or
removed needs a migration that rewrites `generations.request_json`, or older results cannot be read.
A new field with a default needs none.
"""

from __future__ import annotations

import sqlalchemy as sa

SCHEMA = "0002"

_meta = sa.MetaData()
generations = sa.Table(
    "generations",
    _meta,
    *(sa.Column(name, sa.Text) for name in ("id", "parent_id", "created_utc", "editor")),
    *(sa.Column(name, sa.Text) for name in ("input", "output", "request_json", "settings_json")),
    sa.Column("seed", sa.BigInteger),
    sa.Column("sample_index", sa.Integer),
    *(sa.Column(name, sa.Text) for name in ("model", "model_hash", "backend")),
    sa.Column("seconds", sa.Float),
    *(sa.Column(name, sa.Text) for name in ("warnings_json", "versions_json", "owner")),
    sa.Column("starred", sa.Boolean),
    sa.Column("preferred", sa.Boolean),
    sa.Column("deleted_utc", sa.Text),
)
steps = sa.Table(
    "steps",
    _meta,
    sa.Column("generation_id", sa.Text),
    sa.Column("i", sa.Integer),
    sa.Column("t", sa.Float),
    sa.Column("text", sa.Text),
)
tags = sa.Table("tags", _meta, sa.Column("generation_id", sa.Text), sa.Column("tag", sa.Text))
presets = sa.Table(
    "presets",
    _meta,
    *(sa.Column(name, sa.Text) for name in ("owner", "editor", "name", "settings_json")),
)

# SQLite alone: an index of every run of three characters, over texts that stay in `generations`.
# Its rows are numbered in `search_rows`, since SQLite may renumber those of `generations`.
search = sa.Table("search", sa.MetaData(), sa.Column("rowid", sa.Integer))
search_rows = sa.Table(
    "search_rows", sa.MetaData(), sa.Column("n", sa.Integer), sa.Column("generation_id", sa.Text)
)
