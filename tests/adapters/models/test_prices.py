"""What tokens cost: own prices first, then the public list, else nobody knows."""

from __future__ import annotations

import pytest

from detent.adapters.models.prices import PriceTable
from detent.dispatch.usage import UsageMetadata
from detent.kernel.errors import ConfigurationError

MILLION = UsageMetadata(input_tokens=1_000_000, output_tokens=1_000_000)


class TestOwnPrices:
    def test_an_exact_id_wins_over_a_pattern(self):
        table = PriceTable({"m-1*": {"input": 9, "output": 9}, "m-1": {"input": 1, "output": 2}})
        assert table.cost("m-1", MILLION) == 3.0

    def test_of_two_patterns_the_longer_wins(self):
        table = PriceTable({"m*": {"input": 9, "output": 9}, "m-large*": {"input": 1, "output": 1}})
        assert table.cost("m-large-2", MILLION) == 2.0
        assert table.cost("m-small", MILLION) == 18.0

    def test_own_prices_win_over_the_public_list(self):
        assert PriceTable({"gpt-4o*": {"input": 0, "output": 0}}).cost("gpt-4o-mini", MILLION) == 0.0

    def test_cached_tokens_have_their_own_prices_and_are_part_of_the_input(self):
        table = PriceTable({"m": {"input": 10, "output": 0, "cache_read": 1, "cache_write": 20}})
        used = UsageMetadata(input_tokens=1000, cache_read_tokens=600, cache_write_tokens=100)
        assert table.cost("m", used) == pytest.approx((300 * 10 + 600 * 1 + 100 * 20) / 1e6)

    def test_without_a_cache_price_cached_tokens_cost_what_others_do(self):
        table = PriceTable({"m": {"input": 10, "output": 0}})
        assert table.cost("m", UsageMetadata(input_tokens=1000, cache_read_tokens=600)) == pytest.approx(0.01)

    def test_given_is_told_apart_from_known(self):
        table = PriceTable({"m": {"input": 1, "output": 1}})
        assert (table.given("m"), table.known("m")) == (True, True)
        assert (table.given("gpt-4o-mini"), table.known("gpt-4o-mini")) == (False, True)


class TestThePublicList:
    @pytest.mark.parametrize("model_id", ["gpt-4o-mini", "openai:gpt-4o-mini"])
    def test_a_known_model_has_a_price(self, model_id):
        assert PriceTable().cost(model_id, MILLION) == pytest.approx(0.75)

    def test_the_default_claude_has_a_price(self):
        from detent.adapters.models.claude import MODEL_ID

        assert PriceTable().known(MODEL_ID)

    @pytest.mark.parametrize("model_id", ["nobody-knows-me", "llama3.1:8b", "", None])
    def test_an_unknown_model_has_none(self, model_id):
        table = PriceTable()
        assert table.cost(model_id, MILLION) is None
        assert not table.known(model_id)


def test_everything_wrong_with_a_table_is_told_at_once():
    with pytest.raises(ConfigurationError) as caught:
        PriceTable(
            {
                "a": {"input": -1, "output": 1},
                "b": {"input": 1, "output": 1, "cash_read": 1},
                "c": {"input": True, "output": float("nan")},
                "d*e": {"input": 1, "output": 1},
                "f": {"output": 1},
                "g": 3,
            }
        )
    text = str(caught.value)
    assert "has 7 problems" in text
    assert "a: input must not be negative" in text
    assert "Did you mean 'cache_read'?" in text
    assert "f: lacks input" in text
