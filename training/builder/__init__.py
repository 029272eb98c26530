"""The corpus builder: packages in, JSONL files out (docs/data.md)."""
