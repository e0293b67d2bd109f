"""All NEXMark queries, each across a migration, in one table."""
