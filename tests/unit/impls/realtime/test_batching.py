from impls.realtime.flow import BatchingWindow


def window() -> BatchingWindow:
    return BatchingWindow(wait_s=0.5, lately_s=8.0)


def test_one_router_alone_waits_for_nobody():
    alone = window()
    assert [alone.wait_s({0}, now) for now in (0.0, 1.0, 2.0)] == [0, 0, 0]


def test_a_commit_waits_for_a_router_that_sent_lately_until_it_has_come():
    two = window()
    assert two.wait_s({0, 1}, 0.0) == 0
    assert two.wait_s({0}, 1.0) == 0.5
    assert two.wait_s({0, 1}, 1.25) == 0


def test_a_commit_waits_no_longer_than_the_bound_though_blobs_come():
    two = window()
    two.wait_s({0, 1}, 0.0)
    two.wait_s({0}, 1.0)
    assert two.wait_s({0}, 1.25) == 0.25
    assert two.wait_s({0}, 1.5) == 0


def test_each_commit_has_its_own_bound():
    two = window()
    two.wait_s({0, 1}, 0.0)
    assert two.wait_s({0}, 1.0) == 0.5
    assert two.wait_s({0}, 1.5) == 0
    assert two.wait_s({0}, 2.0) == 0.5


def test_a_router_that_has_long_sent_nothing_is_not_waited_for():
    two = window()
    two.wait_s({0, 1}, 0.0)
    assert two.wait_s({0}, 9.0) == 0
