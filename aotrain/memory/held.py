"""An entry and a position in it in, gradients that wait there for their update out.

An update frees its gradient and allocates nothing, so it runs as soon as it may. Where it may not
(a weight that is used twice has two gradients to be summed first; a clip by the global norm waits
for all of them), the gradient's bytes are held back.
"""

from __future__ import annotations

from aotrain.memory.liveness import lifetimes
from aotrain.plan import Entry, Kind, Launch, Plan, Role


def held_back(plan: Plan, entry: Entry, position: int) -> list[tuple[str, int, str]]:
    """(tensor, bytes, origin of the launch it waits for) of each, the largest first.

    A gradient is a TEMP tensor as large as the trained tensor that the launch which reads it last
    changes. It waits at `position` if it is alive, no launch there needs it, and something else
    that its reader needs has yet to be made.
    """
    found = []
    for life in lifetimes(plan, entry):
        if not life.first < position < life.last or not _trains(
            plan, entry, life.last, life.tensor
        ):
            continue
        made = _last_writer(plan, entry, life.last)
        if made > position:
            origin = entry.launches[made].origin
            found.append((plan.tensors[life.tensor].name, life.nbytes, origin))
    return sorted(found, key=lambda item: -item[1])


def _trains(plan: Plan, entry: Entry, position: int, gradient: int) -> bool:
    launch = entry.launches[position]
    written = (plan.tensors[launch.args[i]] for i in launch.writes)
    nbytes = plan.tensors[gradient].nbytes
    return any(t.role is Role.TRAINABLE and t.nbytes == nbytes for t in written)


def _last_writer(plan: Plan, entry: Entry, position: int) -> int:
    """Where the last of the TEMP tensors that the launch at `position` reads is written."""
    reader = entry.launches[position]
    needed = {i for i in reader.args if plan.tensors[i].kind is Kind.TEMP}

    def writes(launch: Launch) -> bool:
        return any(launch.args[i] in needed for i in launch.writes)

    return max(p for p, launch in enumerate(entry.launches[:position]) if writes(launch))
