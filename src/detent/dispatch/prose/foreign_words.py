"""Frequent words of languages that are never answered in, so that their sentences are recognised."""

from __future__ import annotations

FOREIGN: tuple[frozenset[str], ...] = tuple(
    frozenset(words.split())
    for words in (
        "le la les un une des du de nous vous votre notre est sont et ou pour avec dans sur merci veuillez envoyer "
        "pas ne que qui cette ce bonjour au aux plus nos vos par il elle sera bien",  # French
        "el la los las un una de del y o para con por que su sus nos es son no en gracias favor usted le se al "
        "muy este esta numero si como mas",  # Spanish
        "il lo la gli un una di del della e per con che non si grazie vostro nostro sono il suo ci vi al nel "
        "questo questa prego numero come piu",  # Italian
        "de het een en van uw u wij ons is zijn voor met niet op dank kunt graag bij aan dat die dit naar ook "
        "wordt onze heeft",  # Dutch
        "se na je ze pro jsme vas vase dekujeme prosime cislo neni aby jak nebo si to za od nas bude",  # Czech
    )
)
