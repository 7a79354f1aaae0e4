"""A package as a stranger would publish it: one of everything workflow files can name, by entry points."""

from __future__ import annotations

from pathlib import Path

MODULE = '''
"""Somebody's shop."""

from detent.flows.workflow.registry import (
    ValidationStage, action, agent, context_builder, generator, prerequisite, validation_stage,
)


@action("shop_price", intent="Work out what an order of so many pieces comes to.")
def price(count: int, each: float = 2.5) -> dict:
    return {"total": count * each}


@action("shop_refund", intent="Take back what an order came to, in full and once.", effects=["db.upsert"],
        rollback="shop_price", max_autonomy="consultant")
async def refund(ctx, order: str) -> dict:
    return {"order": order}


@agent("shop_buyer", instructions="You buy what is missing.", tools=["files.read"])
def buyer(context):
    return f"Missing: {context['missing']}"


@agent("shop_seller", instructions="You sell.")
class Seller:
    def __call__(self, context):
        return "Sell."


@generator("shop_letter", intent="Write a letter to a customer about an order.")
def letter(name: str) -> str:
    return f"Dear {name}"


@context_builder("shop_orders")
def orders(ctx):
    """The orders of today."""
    return {"orders": []}


@prerequisite("shop_open", remediation="Come back at eight.")
def is_open():
    return True, "open until six"


docs = validation_stage("shop_docs", command=["true"], timeout=60)


def several():
    """Things made when they are asked for."""
    return [price, Seller, ValidationStage("shop_stock", "shop.stock", ("true",))]
'''
POINTS = """
[detent.actions]
shop = shop_package
[detent.agents]
buyer = shop_package:buyer
seller = shop_package:several
[detent.generators]
letter = shop_package:letter
[detent.context_builders]
orders = shop_package
[detent.prerequisites]
open = shop_package:is_open
[detent.validation_stages]
docs = shop_package:docs
stock = shop_package:several
"""


def install(site: Path, points: str = POINTS, module: str = MODULE) -> Path:
    """Put the package into a folder as an installer would."""
    info = site / "shop_package-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "shop_package.py").write_text(module)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    return site
