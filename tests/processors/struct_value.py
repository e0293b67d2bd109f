"""A value state with a struct in a struct: the newest address of a customer, with how often it has changed."""

from cases import Case
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

STATE = "address struct<street: string, place: struct<zip: int, city: string>>, changes int"


class Address(StatefulProcessor):
    def init(self, handle):
        self._address = handle.getValueState("address", STATE)

    def handleInputRows(self, key, rows, timerValues):
        for row in sorted(rows, key=lambda row: row.n):
            new = ((row.address["street"], (row.address["place"]["zip"], row.address["place"]["city"])), 0)
            if self._address.exists():
                (street, place), changes = self._address.get()
                same = (street, tuple(place)) == new[0]
                new = (new[0], changes + (not same))
            self._address.update(new)
        address, changes = self._address.get()
        yield Row(customer=key[0], city=address[1][1], changes=changes)


def moved(customer, n, street, code, city):
    return (customer, n, {"street": street, "place": {"zip": code, "city": city}})


INPUT = "customer long, n int, address struct<street: string, place: struct<zip: int, city: string>>"
OUTPUT = "customer long, city string, changes int"
CHUNKS = [
    [moved(1, 0, "High St", 10, "Ulm"), moved(2, 1, "Low St", 20, "Bonn"), moved(1, 2, "High St", 10, "Ulm")],
    [moved(1, 3, "Oak", 30, "Trier"), moved(1, 4, "Oak", 31, "Trier")],
    [moved(2, 5, "Low St", 20, "Bonn"), moved(3, 6, None, None, "Köln")],
]
CASE = Case(Address, INPUT, OUTPUT, CHUNKS, key=("customer",))
