"""Random plans for property tests: a valid program, unplaced."""

from __future__ import annotations

from hypothesis import strategies as st

from aotrain.plan import Entry, Kind, Launch, Plan, Role, Tensor

SIZES = st.sampled_from([0, 1, 3, 16, 17, 64, 100, 1000])


@st.composite
def plans(draw: st.DrawFn, entries: int = 2) -> Plan:
    """Up to 12 launches an entry, each reading what is there and writing something new."""
    tensors = [
        Tensor(f"state.{i}", (draw(SIZES),), "float32", Kind.STATE, Role.TRAINABLE)
        for i in range(draw(st.integers(1, 3)))
    ]
    tensors.append(Tensor("x", (draw(SIZES),), "float32", Kind.INPUT))
    persistent = list(range(len(tensors)))
    made = []
    for number in range(entries):
        alive, launches = list(persistent), []
        for _ in range(draw(st.integers(0, 12))):
            reads = draw(st.lists(st.sampled_from(alive), max_size=3, unique=True))
            new = len(tensors)
            tensors.append(Tensor(f"t{new}", (draw(SIZES),), "float32", Kind.TEMP))
            args, writes = [*reads, new], [len(reads)]
            if reads and draw(st.booleans()) and tensors[reads[0]].kind is Kind.STATE:
                writes.insert(0, 0)  # an update in place
            launches.append(Launch(0, tuple(args), tuple(writes)))
            alive.append(new)
        made.append(Entry(f"entry{number}", tuple(launches), (persistent[-1],), ()))
    return Plan(tuple(tensors), ("kernel",), tuple(made))
