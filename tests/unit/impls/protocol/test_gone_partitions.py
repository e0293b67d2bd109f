"""A watermark that waits for input partitions waits for none whose topic was made anew."""

from impls.protocol.eventtime import EventClock, EventTime


def clock(**more) -> EventClock:
    return EventClock(EventTime("at", disorder=10, **more), 4)


def test_two_topics_with_equal_partitions_hold_the_watermark_each():
    both = clock()
    both.observe([(0, 10_000), (1 << 20, 100)], [])
    assert both.watermark == 90


def test_what_is_gone_holds_it_no_longer():
    one = clock()
    one.observe([(0, 100), (5 << 20, 900)], [])
    assert one.watermark == 90
    one.forget(lambda partition: partition == 0)
    assert one.watermark == 890
    again = clock()
    again.restore(one.to_json())
    again.forget(lambda partition: partition == 0)
    assert again.watermark == 890


def test_it_never_falls_when_the_furthest_is_gone():
    one = clock(of_all=True)
    one.observe([(0, 100), (1, 900)], [])
    one.forget(lambda partition: partition == 1)
    assert one.watermark == 890
