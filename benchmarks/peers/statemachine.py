"""The peer ``python-statemachine``: a bare state-machine object."""

import time

from statemachine import State, StateMachine
from statemachine.exceptions import TransitionNotAllowed

from benchmarks.protocol import Param, Result, main, require


class Cycle(StateMachine):
    """The four-state cycle."""

    draft = State(initial=True)
    review = State()
    approve = State()
    publish = State()

    submit = draft.to(review)
    accept = review.to(approve)
    release = approve.to(publish)
    reopen = publish.to(draft)

    def __init__(self) -> None:
        """Begin with nothing noted."""
        self.history: list[tuple[str, str, float]] = []
        super().__init__()

    def after_transition(self, source: State, target: State) -> None:
        """Record the move."""
        self.history.append((source.id, target.id, time.time()))


def run_object(param: Param) -> Result:
    """Walk the cycle, each move checked by the machine and recorded with its time."""
    machine = Cycle()
    events = (machine.submit, machine.accept, machine.release, machine.reopen)
    moves = [events[step % 4] for step in range(param["steps"])]
    begin = time.perf_counter()
    for move in moves:
        move()
    seconds = time.perf_counter() - begin
    require(len(machine.history) == param["steps"], "moves were not recorded")
    refused = False
    try:
        events[(param["steps"] + 1) % 4]()
    except TransitionNotAllowed:
        refused = True
    require(refused, "an illegal move was accepted")
    return {"seconds": seconds, "n": param["steps"]}


if __name__ == "__main__":
    main({"object": run_object})
