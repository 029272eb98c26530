"""Alembic environment, run by `app.store_database` on a connection already in a transaction.

To add a migration: append `versions/NNNN_what.py` with the next number as `revision` and the
previous one as `down_revision`, and set `app.store_schema.SCHEMA` to it. Never edit an old one.
"""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
