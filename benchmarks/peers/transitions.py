"""The peer ``transitions``: a bare state-machine object."""

import time

from transitions import Machine, MachineError

from benchmarks.protocol import STATES, Param, Result, main, require, succ


def run_object(param: Param) -> Result:
    """Walk the cycle, each move checked by the machine and recorded with its time."""

    class Model:
        """The object that carries the state."""

    model = Model()
    history: list[tuple[str, str, float]] = []
    state = STATES[0]

    def record() -> None:
        nonlocal state
        history.append((state, model.state, time.time()))
        state = model.state

    Machine(
        model,
        states=list(STATES),
        initial=STATES[0],
        transitions=[{"trigger": f"to_next_{name}", "source": name, "dest": succ(name)} for name in STATES],
        auto_transitions=False,
        after_state_change=record,
    )
    moves = [getattr(model, f"to_next_{STATES[step % 4]}") for step in range(param["steps"])]
    begin = time.perf_counter()
    for move in moves:
        move()
    seconds = time.perf_counter() - begin
    require(len(history) == param["steps"], "moves were not recorded")
    refused = False
    try:
        getattr(model, f"to_next_{succ(model.state)}")()
    except MachineError:
        refused = True
    require(refused, "an illegal move was accepted")
    return {"seconds": seconds, "n": param["steps"]}


if __name__ == "__main__":
    main({"object": run_object})
