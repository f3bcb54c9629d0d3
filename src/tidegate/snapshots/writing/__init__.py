"""New snapshots: rows encoded, operators rewritten, files and ``_metadata`` written."""
