"""Other engines that run the same count: their programs are fetched and compiled on first use."""
