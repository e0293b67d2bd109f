"""Which hand of the tests a run plays."""

from harness.cli.development import HANDS, hand_of


def test_five_commits_in_a_row_play_all_hands():
    assert {hand_of(commits, "")[0] for commits in range(813, 818)} == set(range(HANDS))
    assert hand_of(813, "") == (3, "HEAD's number of commits, 813")


def test_a_shallow_clone_which_has_one_commit_goes_by_its_hash():
    hashes = [f"{n:040x}" for n in range(HANDS)]
    assert {hand_of(1, commit)[0] for commit in hashes} == set(range(HANDS))
    assert "shallow" in hand_of(1, hashes[0])[1]
