"""What a machine needs before anything runs: the environment, Java, the jars."""
