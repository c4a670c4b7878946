"""A custom score: by how much the most likely class leads, as a mean over the target's samples.

Run it with `fedrf run track.select=margin:margin`.
"""


def margin(probabilities):
    """Return the mean difference between the two largest probabilities of a row (n × classes)."""
    first, second = probabilities.topk(2, dim=1).values.unbind(1)
    return (first - second).mean()


margin.higher_is_better = True
