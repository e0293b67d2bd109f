"""The oracle of queries whose pipeline changes: each record under one version's code, and which one by its offset."""
