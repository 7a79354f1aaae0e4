"""Words by which sentences of other languages are recognised."""

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
        "sa na je ze pre sme vas vasa cislo nie aby ako alebo si to za od nas bude je vam ktory",  # Slovak
        "je na se su za od vas vam nas ste smo broj uredaj nije ili ako sto koji da pod bit ce",  # Croatian
        "och att det som en ett for av med till inte har den vi du er ditt din kan om var vara eller hor",  # Swedish
        "og det er en et for av med til ikke har den vi du deg din kan om fra som eller vil ikke dere",  # Danish
        "ja on ei se etta meidan teidan laite ovat kun jos tai voi asti pian otamme yhteytta kiitos oli",  # Finnish
        "a az es nem hogy van volt egy ez azt on onnek mi is meg vagy ha lesz keszulek szama napig",  # Hungarian
        "si in la cu de pe nu este sunt pentru va ne dumneavoastra sau un o care din mai vom fi ati",  # Romanian
        "o a os as um uma de do da e que nao em para com por se na no seu sua esta foi obrigado ate",  # Portuguese
        "ve bir bu icin ile de da siz biz size kadar olarak var yok mi numarali cihaz tarihine",  # Turkish
    )
)

GREETINGS = frozenset(
    """
    danke dankeschon grusse grussen gruss tschuss merci bonjour salut cordialement bonsoir gracias hola saludos grazie ciao
    buongiorno saluti obrigado obrigada ola cumprimentos dank groeten groet bedankt tack hej halsningar takk hilsen
    kiitos terveisin hei dekuji dekujeme diky pozdravem ahoj dakujem dakujeme hvala pozdrav postovani multumim salutari
    koszonom koszonjuk udvozlettel szia tesekkurler tesekkur merhaba aciu paldies aitah spasibo privet arigato
    dziekuje dziekujemy dziekujac pozdrawiam pozdrawiamy prosze witam thanks thank hello regards cheers sincerely goodbye
    """.split()
)
"""Greetings and thanks, folded, by which even a short sentence shows its language."""

LOANS = frozenset("café cafés naïve façade".split())
"""Words with letters of another language that are at home everywhere."""
