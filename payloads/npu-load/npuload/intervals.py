"""A load in pieces of equal length, by the ends of its requests: what one number for a whole run hides."""

from npuload.latencies import summary


def intervals(samples, begin_s, end_s, length_s):
    """One dictionary a piece from `begin_s` to `end_s`; the last one ends with the load and may be shorter.

    `amount` counts the requests that succeeded and ended in the piece, `rate_per_s` is amount over its length, latency
    as in the summary, `nodes` the amount of each node. Every success of the load is in exactly one piece.
    """
    pieces = []
    count = max(1, int((end_s - begin_s) / length_s + 1e-9))
    # A last piece of a few milliseconds would have a rate that means nothing: what is left belongs to the one before.
    edges = [begin_s + index * length_s for index in range(count)] + [max(end_s, begin_s + 1e-6)]
    places = [[] for _ in range(count)]
    for place in range(len(samples)):
        index = min(count - 1, max(0, int((samples.ended_s[place] - begin_s) / length_s)))
        places[index].append(place)
    nodes = samples.nodes.list()
    for index, inside in enumerate(places):
        start_s, stop_s = edges[index], edges[index + 1]
        good = [place for place in inside if samples.code[place] == 0]
        by_node = {}
        for place in good:
            name = nodes[samples.node[place]]
            by_node[name] = by_node.get(name, 0) + 1
        pieces.append(
            {
                "index": index,
                "start_monotonic_s": round(start_s, 6),
                "end_monotonic_s": round(stop_s, 6),
                "amount": len(good),
                "failed": len(inside) - len(good),
                "rate_per_s": len(good) / (round(stop_s, 6) - round(start_s, 6)),
                "latency": summary(latency_us(samples, good)),
                "nodes": dict(sorted(by_node.items())),
            }
        )
    return pieces


def latency_us(samples, places):
    """Latencies of these requests from their intended start, in whole microseconds."""
    ended, intended = samples.ended_s, samples.intended_s
    return [round((ended[place] - intended[place]) * 1e6) for place in places]
