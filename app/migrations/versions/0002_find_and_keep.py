"""Owners, stars, marks, tags, deletion that can be undone, presets, and search."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# "trigram" finds any run of characters, whatever the script: "unicode61" would drop signs and
# emoji, and take a Chinese sentence for one word.
SEARCH = (
    "CREATE TABLE search_rows (n INTEGER PRIMARY KEY, generation_id VARCHAR(26) NOT NULL UNIQUE)",
    "CREATE VIEW search_source AS SELECT n, input, output FROM search_rows"
    " JOIN generations ON id = generation_id",
    "CREATE VIRTUAL TABLE search USING fts5(input, output, content='search_source',"
    " content_rowid='n', tokenize='trigram')",
    "INSERT INTO search_rows (generation_id) SELECT id FROM generations ORDER BY id",
    "INSERT INTO search (search) VALUES ('rebuild')",
    """CREATE TRIGGER search_insert AFTER INSERT ON generations BEGIN
    INSERT INTO search_rows (generation_id) VALUES (new.id);
    INSERT INTO search (rowid, input, output)
    SELECT n, new.input, new.output FROM search_rows WHERE generation_id = new.id; END""",
    """CREATE TRIGGER search_delete AFTER DELETE ON generations BEGIN
    INSERT INTO search (search, rowid, input, output)
    SELECT 'delete', n, old.input, old.output FROM search_rows WHERE generation_id = old.id;
    DELETE FROM search_rows WHERE generation_id = old.id; END""",
)


def upgrade() -> None:
    for column in (
        sa.Column("owner", sa.String(128), nullable=False, server_default=""),
        sa.Column("starred", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("preferred", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("deleted_utc", sa.String(32), nullable=True),
    ):
        op.add_column("generations", column)
    op.create_index("ix_generations_owner_id", "generations", ["owner", "id"])
    op.create_index("ix_generations_parent_id", "generations", ["parent_id"])
    op.create_table(
        "tags",
        sa.Column(
            "generation_id",
            sa.String(26),
            sa.ForeignKey("generations.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("tag", sa.String(64), primary_key=True),
    )
    op.create_index("ix_tags_tag", "tags", ["tag"])
    op.create_table(
        "presets",
        sa.Column("owner", sa.String(128), primary_key=True),
        sa.Column("editor", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("settings_json", sa.Text, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for statement in SEARCH:
            op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for what in ("TRIGGER search_insert", "TRIGGER search_delete", "TABLE search"):
            op.execute(f"DROP {what}")
        op.execute("DROP VIEW search_source")
        op.execute("DROP TABLE search_rows")
    op.drop_table("presets")
    op.drop_table("tags")
    op.drop_index("ix_generations_parent_id", "generations")
    op.drop_index("ix_generations_owner_id", "generations")
    for name in ("deleted_utc", "preferred", "starred", "owner"):
        op.drop_column("generations", name)
