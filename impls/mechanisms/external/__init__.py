"""The mechanism "external state": bins live in a store that all workers share, and a move is a change of owner."""
