"""First schema: one row for each finished result, and optionally its text at each step."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "generations",
        sa.Column("id", sa.String(26), primary_key=True),
        sa.Column("parent_id", sa.String(26), sa.ForeignKey("generations.id"), nullable=True),
        sa.Column("created_utc", sa.String(32), nullable=False),
        sa.Column("editor", sa.String(32), nullable=False),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("output", sa.Text, nullable=False),
        sa.Column("request_json", sa.Text, nullable=False),
        sa.Column("settings_json", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("sample_index", sa.Integer, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("model_hash", sa.Text, nullable=False),
        sa.Column("backend", sa.String(32), nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("warnings_json", sa.Text, nullable=False),
        sa.Column("versions_json", sa.Text, nullable=False),
    )
    op.create_index("ix_generations_editor_id", "generations", ["editor", "id"])
    op.create_table(
        "steps",
        sa.Column(
            "generation_id",
            sa.String(26),
            sa.ForeignKey("generations.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("i", sa.Integer, primary_key=True),
        sa.Column("t", sa.Float, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("steps")
    op.drop_table("generations")
