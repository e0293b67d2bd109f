"""What is compared: the description of an experiment, its checks, and its schedule of migrations."""
