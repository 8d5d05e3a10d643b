"""Labels and ids give nothing away."""

from __future__ import annotations

import random
import re

from massgend.orchestrator.labels import new_labels, new_run_id


def test_labels_are_different_from_each_other_for_any_team() -> None:
    for count in (1, 3, 64, 200):
        labels = new_labels(random.Random(1), count)
        assert len(set(labels)) == count
        assert all(re.fullmatch(r"[a-z]+(-\d+)?", label) for label in labels)


def test_an_agents_place_in_the_list_cannot_be_read_off_its_label() -> None:
    firsts = {new_labels(random.Random(seed), 3)[0] for seed in range(50)}

    assert len(firsts) > 20


def test_run_ids_are_random_and_good_for_paths_and_branches() -> None:
    ids = {new_run_id(random.Random(seed)) for seed in range(200)}

    assert len(ids) == 200
    assert all(re.fullmatch(r"[a-z][a-z2-9]{9}", one) for one in ids)
