"""NEXMark's answers recomputed in SQL over the input topic, from each query's definition."""
