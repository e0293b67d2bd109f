"""What survives the loss of a worker's state: changelog, snapshots, manifest, and restoring bins from them."""
