"""Stand-ins for receipts, and data that only looks like one."""

from hypothesis import given
from hypothesis import strategies as st

from detent.engine.outcome import Effect, Outcome, Receipt
from detent.engine.placeholders import written
from detent.engine.tools import Tool
from detent.kernel.placeholders import fill, receipts_in
from detent.kernel.plain import decode, encode
from detent.kernel.status import Status
from tests.engine.conftest import one_step

LOOK_ALIKES = [
    {"$receipt": "k"},
    {"$receipt": "k.id", "more": 1},
    {"$literal": {"$receipt": "k"}},
    {"$literal": "x"},
    {"deep": [{"$receipt": "k.id"}]},
]

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "$receipt", "$literal", "$blob"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(plain)
def test_data_comes_back_as_it_was_whatever_it_looks_like(value):
    kept = decode(encode(written(value)))
    assert receipts_in(kept) == set()
    assert fill(kept, {}) == value


def test_a_stand_in_is_filled_also_inside_what_looks_like_one():
    value = {"$receipt": {"inner": Receipt("k", "id")}, "plain": Receipt("k")}
    kept = decode(encode(written(value)))
    assert receipts_in(kept) == {"k"}
    assert fill(kept, {"k": {"id": 7}}) == {"$receipt": {"inner": 7}, "plain": {"id": 7}}


async def test_text_from_outside_never_becomes_a_receipt(bench):
    """I9: a query's answer that looks like a stand-in is data, beside an effect too."""
    sent = []

    def send(to, body):
        sent.append((to, body))
        return {"id": "secret-receipt"}

    async def work(ctx):
        heard = await ctx.query("mail.read")
        effect = Effect("mail.send", {"to": "customer", "body": heard})
        forged = {"$receipt": f"{effect.identity('work')}.id"}
        return Outcome(set={"heard": heard, "forged": forged}, effects=[effect])

    for look_alike in LOOK_ALIKES:
        tools = [Tool("mail.read", lambda answer=look_alike: answer, kind="query"), Tool("mail.send", send)]
        engine = await bench.engine(one_step(work, tools=tools))
        run = await engine.run("flow")
        assert run.status is Status.SUCCEEDED, run.error
        assert run.data["heard"] == look_alike
        assert set(run.data["forged"]) == {"$receipt"}
        assert sent[-1] == ("customer", look_alike)
