"""Entries added to the starting lists of words from experience with real mails.

Redirecting a mail wrongly costs more than asking for its serial number, so the lists of
faults are long, the phrases of a topic are whole phrases, and single words that a customer may use as well
("parcel", "price") are weak: it takes two of them, and no serial number, to make a topic. Words that also fit
a complaint about an invoice ("does not", "problem with") are faults only if a device is named.
"""

from __future__ import annotations

FAULT = (
    "do not work", "not print", "not read", "not start", "not turn", "not switch", "not charg", "not react",
    "not recogni", "not connect", "not cold", "not power", "will not start", "will not turn",
    "will not print", "will not switch", "will not charge", "will not boot", "will not come on",
    "no longer work", "no longer print", "no longer read", "no longer start", "no longer turn",
    "no longer charg", "nothing comes out", "reads nothing", "prints nothing", "shows nothing",
    "malfunction", "out of order", "frozen", "froze", "flicker", "blink", "beep", "grind", "squeak",
    "rattl", "buzz", "strange sound", "loud", "stripe", "faint", "smear", "smudg", "blurr", "too pale",
    "crash", "reboot", "snapped", "dented", "smashed", "shatter", "wrong weight", "wrong colour",
    "wrong color", "disconnect", "grey screen", "gray screen", "white screen", "blue screen",
    "screen is black", "screen stays", "two sheets", "two labels", "drains", "melt", "trips the", "blown",
    "kaput", "defekt", "skewed", "crooked", "wobbl", "overload", "hums", "too hot", "so hot", "misprint",
    "misread", "misaligned", "gibberish", "nie drukuj", "nie skanuj", "nie czyta", "nie odczyt",
    "nie reaguj", "nie uruch", "nie startuj", "nie swieci", "nie laduj", "nie lapie", "nie chlodzi",
    "nie mrozi", "nie grzej", "nie wazy", "nie pokazuj", "nie wyswietla", "nie rusza", "nie tnie",
    "nie rozpozna", "nie trzyma", "nie kreci", "zawiesz", "zawiesi", "zaciel", "zaciol", "zacie", "piszcz",
    "buczy", "stuka", "trzeszcz", "zgrzyt", "szumi", "=miga", "=migaja", "mruga", "rozmaz", "drukuje blado",
    "blado", "paski na", "biale paski", "zbit", "stluczon", "pekl", "peka", "zlama", "wygi", "cieknie",
    "=kapie", "wyciek", "przegrzew", "rozladow", "wylacza sie", "rozlacza", "zla wage", "zly wynik",
    "wadliw", "wada", "popsu", "szwankuj", "szaleje", "=padl", "=padla", "=padlo", "nawala", "wariuj",
    "swiruj", "krzywo", "kleja sie", "krzaki", "dziwne znaki", "robi sie gorac", "grzeje sie", "zalan",
    "zalal", "zle waz", "zle pokazuj", "czerwona dioda", "czerwona lampk",
)  # fmt: skip

FAULT_WEAK = (
    "does not", "is not getting", "not respon", "not open", "not close", "not load", "will not open",
    "will not close", "can't be", "cannot be", "nothing happens", "stuck", "loses", "losing", "keeps los",
    "slips", "torn", "bent", "damage", "too much", "by itself", "on its own", "drops out", "problem with",
    "problems with", "trouble with", "issue with our", "issue with my", "issue with the", "comes out twice",
    "goes out", "lasts only", "cut off", "sticky", "offline", "runs slow", "very slow", "nie odpowiada",
    "nie chce sie", "nie otwiera", "nie zamyka", "nie da sie", "nie pobiera", "nie widzi", "przesta",
    "zatrzyma", "stanela", "stanal", "sam sie", "sama sie", "samo sie", "problem z", "problemy z",
    "klopot z", "po dwie", "uciet", "ucina", "gubi", "luzn", "odpada", "odpadl", "spadl", "bardzo wolno",
    "trzyma tylko",
)  # fmt: skip
"""Complaints that may concern an invoice; they count only if a device is named as well."""

DEVICE = (
    "printer", "scanner", "scale", "=till", "=tills", "kiosk", "terminal", "cash register", "cash drawer",
    "display", "touchscreen", "machine", "device", "drukark", "skaner", "=waga", "=wagi", "=wage", "=wadze",
    "kasa fiskaln", "kasy fiskaln", "ekran", "urzadzen", "czytnik", "monitor", "szuflad",
    "lodowk", "fridge", "oven",
)  # fmt: skip

SAFETY = (
    "burnt", "caught fire", "on fire", "=flame", "=flames", "scorch", "got a shock", "plomien", "plonie",
    "spaleniz", "przypalon", "kopie pradem", "kopnal prad", "zwarci",
)  # fmt: skip

WARRANTY = (
    "still covered", "is covered", "it covered", "service visit", "service call", "send a technician",
    "technician should", "technician to come", "engineer to come", "come and look", "have a look at it",
    "=fix", "servicing", "przyjazd serwis", "wizyta serwis", "wizyte serwis", "wizyty serwis", "zglaszam",
    "zglosic aw", "zgloszenie serwis", "zgloszenia serwis", "zlecenie serwis", "=przeglad", "=przegladu",
    "do serwisu", "o serwis", "serwis urzadz",
)  # fmt: skip

TOPICS: dict[str, tuple[str, ...]] = {
    "opening-hours": (
        "are you open", "do you open", "you open on", "business hours", "hours of business",
        "when do you close", "w jakich godzinach", "do ktorej czynn", "do ktorej jest", "czynni w",
        "czynne w", "czynny w", "otwarci w", "otwarte w",
    ),
    "prices": (
        "how much is", "how much are", "how much does a new", "how much for", "what does a new",
        "what would one cost", "what would it cost to buy", "what do you charge", "what is the price",
        "whats the price", "the price of a", "price for a", "your price", "best price", "a quote for",
        "quote for", "us a quote", "me a quote", "quotation", "=rfq", "price enquiry", "price inquiry",
        "your rates", "unit price", "ile kosztuj", "jaka jest cena", "w jakiej cenie", "jakiej cenie",
        "prosze o wycen", "prosimy o wycen", "o wycene", "zapytanie ofertow", "zapytania ofertow",
        "zapytanie o cen", "prosze o ofert", "prosimy o ofert", "o oferte na", "przedstawienie ofert",
        "cena za",
    ),
    "sales": (
        "do you sell", "do you also sell", "do you stock", "like to buy", "wish to buy", "looking to buy",
        "interested in buying", "interested in purchas", "like to purchas", "want to purchas",
        "wish to purchas", "like to order", "want to order", "wish to order", "place an order",
        "possible to lease", "to lease", "need to rent", "want to rent", "like to rent", "hire them out",
        "chcialbym kupic", "chcialabym kupic", "chcemy kupic", "chcielibysmy kupic", "zakupic",
        "chce zamowic", "chcialbym zamowic", "chcialabym zamowic", "chcemy zamowic", "chcielibysmy zamowic",
        "w sprzedazy", "czy sprzedaj", "chcialbym wynajac", "wynajem", "w leasing", "dostepny od reki",
        "dostepna od reki", "dostepne od reki",
    ),
    "orders": (
        "where is my order", "wheres my order", "cancel my order", "cancel the order", "cancel our order",
        "order be shipped", "order been shipped", "status of my order", "status of order",
        "order confirmation",
    ),
    "delivery": (
        "where is my parcel", "wheres my parcel", "my parcel", "your parcel", "your package", "my package",
        "parcel notice", "your shipment", "my shipment", "tracking number", "track your", "customs fee",
        "gdzie jest moja", "moja paczk", "twoja paczk", "mojej paczk", "twoja przesylk", "numer sledzenia",
        "list przewozow", "do przesylki", "spodziewac sie przesylk", "spodziewac przesylk",
        "moge sie spodziewac",
    ),
    "returns": (
        "refund", "money back", "within 14 days", "right of withdrawal", "return an unopened",
        "return the unopened", "zwrot towaru", "zwrocic towar", "zwrot pieniedzy", "odstapien",
        "odstapic od umow", "w ciagu 14 dni",
    ),
    "invoice": (
        "credit note", "pro forma", "proforma", "billing address", "nota korygujac", "note korygujac",
        "noty korygujac", "duplikat paragon", "dane do fv",
    ),
    "payment": (
        "outstanding balance", "payment reminder", "payment due", "amount due", "overdue", "bank details",
        "bank account number", "wire transfer", "remittance", "past due", "potwierdzenie salda",
        "potwierdzenia salda", "wezwanie do zaplat", "zaleglosc", "zalegla", "przypomnienie o platnosc",
        "termin platnosc",
    ),
    "jobs": (
        "=cv", "my resume", "curriculum vitae", "cover letter", "apply for the", "apply for a position",
        "apply for a job", "applying for", "internship", "are you hiring", "you hiring", "open position",
        "for the position", "looking for a job", "looking for work", "job opening", "apprentice", "recruit",
        "szukam prac", "poszukuje prac", "podjac prace", "list motywacyjn", "na stanowisko",
        "praktyki student", "praktyk zawodow", "=staz", "stazu", "zatrudni", "zyciorys",
    ),
    "partnership": (
        "collaborat", "become a dealer", "become a reseller", "become a distributor", "joint venture",
        "business proposal", "business opportunity", "sponsor", "guest post", "dystrybucj",
        "zostac partner", "zostac dystrybut", "przedstawicielem handlow", "darowizn",
    ),
    "newsletter": (
        "our latest news", "zaproszenie na targi",
    ),
    "password": (
        "my login", "reset link", "customer portal", "customer account", "log in to my account", "hasla",
        "panelu klienta", "panel klienta", "konta klienta",
    ),
    "privacy": (
        "=gdpr", "delete my data", "delete all personal data", "my personal data",
        "data protection request", "usuniecie danych", "usuniecie moich danych", "moich danych osobowych",
        "swoich danych osobowych",
    ),
    "training": (
        "training course", "training for", "offer training", "szkolen",
    ),
    "survey": (
        "satisfaction survey", "our survey", "short survey", "ankiet",
    ),
    "address": (
        "change of address", "we have moved to", "change our address", "zmiana adres", "zmienil sie adres",
        "zmiana siedzib",
    ),
}  # fmt: skip

TOPICS_WEAK: dict[str, tuple[str, ...]] = {
    "prices": (
        "price", "cost", "discount", "cena", "ceny", "cene", "koszt", "rabat", "ofert", "wycen",
    ),
    "sales": (
        "buy", "purchas", "new printer", "new scanner", "new scale", "new till", "new kiosk", "pieces",
        "in stock", "kupic", "kupie", "zakup", "nowa drukark", "nowa wag", "nowy skaner", "nowy terminal",
        "sztuk", "=szt", "dostepn", "sprzedaz",
    ),
    "orders": (
        "ordered", "order no", "order number", "shipped", "zamawia", "zamowil",
    ),
    "delivery": (
        "parcel", "package", "shipment", "shipped", "courier", "arriv", "tracking", "paczk", "przesylk",
        "kurier", "dostarcz",
    ),
    "jobs": (
        "=job", "position", "experience as", "years of experience", "student", "praca", "pracy",
        "doswiadczen",
    ),
    "payment": (
        "pay by", "settle", "balance", "przelew", "zaplat", "saldo", "numer konta",
    ),
    "opening-hours": (
        "saturday", "sunday", "what time", "parking", "sobot", "niedziel", "o ktorej", "otwart", "godzin",
    ),
}  # fmt: skip

SPAM_STRONG = (
    "bitcoin", "million dollars", "million usd", "million euro", "next of kin", "inheritance",
    "late husband", "verify your account", "confirm your identity", "account will be suspended",
    "account has been suspended", "account has been limited", "mailbox is full", "mailbox is almost full",
    "storage is full", "password expires", "viagra", "cialis", "forex", "trading robot", "sugar daddy",
    "adult dating", "hot singles", "you are a winner", "search engine optimi", "page one of",
    "first page of google", "backlink", "link building", "konto zostanie zablokowan",
    "konto zostalo zablokowan", "dane karty", "=doplac", "doplata do paczki", "bez bik", "pozycjonowan",
    "chwilowk", "kryptowalut", "zarabiaj",
)  # fmt: skip

SPAM_WEAK = (
    "special offer", "webinar", "trade fair", "retail fair", "our stand", "your stand", "this week only",
    "today only", "shop now", "buy now", "order now", "act now", "register now", "book your", "early bird",
    "seats are limited", "limited time", "free audit", "free trial", "your website", "we offer",
    "our agency", "influencer", "sponsored article", "your brand", "your domain", "boost your", "=earn",
    "invest in", "best deals", "exclusive deal", "view in browser", "view online", "kup teraz", "promocj",
    "taniej", "wyprzedaz", "okazj", "oferujemy", "nasza oferte", "naszej ofert", "naszej oferc", "bezplatn",
    "fotowoltai", "panele slonecz", "dotacj", "zadzwon juz", "oszczedz", "reklame w internecie",
    "strony internetow", "rabaty", "nowosci", "tylko dzis", "tylko teraz", "pozyczk", "kredyt",
    "zobacz w przegladar",
)  # fmt: skip

MORE = {
    "fault": FAULT,
    "fault_weak": FAULT_WEAK,
    "device": DEVICE,
    "safety": SAFETY,
    "warranty": WARRANTY,
    "topic": TOPICS,
    "topic_weak": TOPICS_WEAK,
    "spam_strong": SPAM_STRONG,
    "spam_weak": SPAM_WEAK,
}
"""By list, in the form of the settings."""
