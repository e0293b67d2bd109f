"""The NEXMark stream of persons, auctions and bids, event by event a function of (seed, event id)."""
