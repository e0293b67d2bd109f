"""A small real-time query in every order of its events: what is drawn elsewhere is tried here, one after another."""
