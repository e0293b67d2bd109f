"""The control: no migration."""
