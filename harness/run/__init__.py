"""One run, from broker to verdict, in a process of its own."""
