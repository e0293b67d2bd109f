"""The suite of queries that change while they run: reconfigurations, each against stop and restart."""
