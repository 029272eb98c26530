"""The corpus builder's extractors and cleaning rules, each on a few lines."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from elf_engine.errors import ElfError
from training.builder import bible, catalogues, descriptions, ding, guides, manual, prose
from training.builder.clean import normalise, pair_fault, sentences, text_fault
from training.builder.guides import Block, align


def fields(rows: Any, *names: str) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in names) for _, row in rows]


def mo_file(messages: dict[str, str], order: str = "<") -> bytes:
    """A gettext catalogue: header, two tables of (length, offset), strings."""
    pairs = [(a.encode(), b.encode()) for a, b in sorted(messages.items())]
    count, head = len(pairs), 28
    at = head + 16 * count
    tables: list[list[tuple[int, int]]] = [[], []]
    blob = b""
    for side in (0, 1):
        for pair in pairs:
            tables[side].append((len(pair[side]), at + len(blob)))
            blob += pair[side] + b"\0"
    numbers = [n for table in tables for entry in table for n in entry]
    header = struct.pack(f"{order}7I", 0x950412DE, 0, count, head, head + 8 * count, 0, 0)
    return header + struct.pack(f"{order}{len(numbers)}I", *numbers) + blob


@pytest.mark.parametrize(
    ("german", "english", "fault"),
    [
        ("Der Hund schläft im Garten.", "The dog sleeps in the garden.", ""),
        ("Es gibt 3 Hunde im Garten.", "There are 2 dogs in the garden.", "numbers"),
        ("Ja, genau.", "Yes, quite.", "length"),
        ("wort " * 41, "word " * 41, "length"),
        ("Nutzen Sie dazu {name} im Garten.", "Use {name} for it in the garden.", "markup"),
        ("Siehe https://a.example im Netz.", "See https://a.example on the net.", "markup"),
        ("Der Hund schläft jetzt.", "The big old dog of ours is sleeping there at last.", "ratio"),
        ("Das GNU Debian Linux System", "The GNU Debian Linux System", "copied"),
        ("собака спит в саду", "The dog sleeps there", "script"),
        (
            "The dog is in the garden of the house",
            "The cat was near a barn of our farm",
            "language",
        ),
    ],
)
def test_rules_for_pairs(german: str, english: str, fault: str) -> None:
    assert pair_fault(german, english) == fault


def test_rules_for_prose() -> None:
    assert text_fault("A plain sentence, no more.") == ""
    assert text_fault("THIS TEXT SHOUTS FAR TOO MUCH") == "capitals"
    assert text_fault("1 2 3 4 5 6 7 8 9") == "symbols"
    assert normalise("\u2022 „Wir“ — sagte\u00a0er …") == '"Wir" - sagte er ...'
    assert sentences("Das ist z. B. gut. Ja!", "de") == ["Das ist z. B. gut.", "Ja!"]


def test_descriptions_join_on_their_checksum(tmp_path: Any) -> None:
    files = {
        "Packages": "Package: frog\nSource: pond (1)\nSection: games\n\n",
        "en": "Package: frog\nDescription-md5: aa\nDescription-en: jumping game for children\n"
        " Frog is a game for children who like ponds. The player jumps over small\n"
        " stones. Children play it together and the frog of the game wins.\n .\n"
        "  * a big pond\n\n"
        "Package: toad\nDescription-md5: bb\nDescription-en: other text\n Nothing.\n\n",
        "de": "Package: frog\nDescription-md5: aa\nDescription-de: Sprungspiel für Kinder\n"
        " Frosch ist ein Spiel. Der Spieler springt über kleine\n"
        " Steine. Kinder spielen es gemeinsam.\n .\n  * ein großer Teich\n\n"
        "Package: x\nDescription-md5: cc\nDescription-de: ohne Partner\n Nichts.\n\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    rows = list(descriptions.rows(*([tmp_path / n] for n in ("Packages", "en", "de"))))
    pairs = [row for stem, row in rows if stem == "trans_clean"]
    assert [(r["de"], r["en"]) for r in pairs] == [
        ("Sprungspiel für Kinder", "jumping game for children"),
        ("Frosch ist ein Spiel.", "Frog is a game for children who like ponds."),
        ("Der Spieler springt über kleine Steine.", "The player jumps over small stones."),
        (
            "Kinder spielen es gemeinsam.",
            "Children play it together and the frog of the game wins.",
        ),
        ("ein großer Teich", "a big pond"),
    ]
    assert pairs[1]["tier"] == "B-ddtp-sentence"
    summaries = [row for stem, row in rows if stem == "summary_clean"]
    assert {(r["tier"], r["summary"]) for r in summaries} == {
        (1, "Jumping game for children."),
    }
    assert summaries[0]["document"].endswith("wins. a big pond")
    assert [stem for stem, _ in rows].count("plain_debian_desc") == 1


def test_a_lead_sentence_summarises_a_body_that_names_its_subject() -> None:
    body = "With Gimble you draw lines. " + "It keeps every picture you draw in one place. " * 3
    one = descriptions.Description(
        "gimble", "x", (f"Gimble is a small program that draws. {body}",)
    )
    ((_, row),) = descriptions.lead_summary(one)
    assert (row["summary"], row["tier"]) == ("Gimble is a small program that draws.", 2)
    other = descriptions.Description("g", "x", (f"Wamble is a small program that draws. {body}",))
    assert list(descriptions.lead_summary(other)) == []


def test_boilerplate_and_developer_packages() -> None:
    text = "Frog draws ponds and stones for children and for their teachers, in many colours. " * 2
    frog = descriptions.Description(
        "frog", "draws ponds and stones", (text, "This package contains x.")
    )
    ((_, row),) = descriptions.synopsis_summary(frog, "libdevel")
    assert row["tier"] == 3
    assert "contains" not in row["document"]
    dummy = descriptions.Description("f", "transitional dummy package", (text,))
    assert list(descriptions.synopsis_summary(dummy, "games")) == []


@pytest.mark.parametrize("order", ["<", ">"])
def test_catalogues(order: str) -> None:
    data = mo_file(
        {
            "": "Content-Type: text/plain",
            "context\x04_Open the old door": "Die alte Tür ö_ffnen",
            "female^Thank you, sir. Go now.": "Danke, mein Herr. Geht jetzt.",
            "%d files in there": "%d Dateien darin",
            "<b>Bold</b> words &amp; more\n\nNext one": "<b>Fette</b> Wörter und mehr\n\nNächstes",
        },
        order,
    )
    rows = catalogues.translations(data, "wesnoth-x")
    assert fields(rows, "de", "en", "tier") == [
        ("Fette Wörter und mehr", "Bold words & more", "A-games"),
        ("Nächstes", "Next one", "A-games"),
        ("Die alte Tür öffnen", "Open the old door", "A-games"),
        ("Danke, mein Herr.", "Thank you, sir.", "A-games"),
        ("Geht jetzt.", "Go now.", "A-games"),
    ]
    for broken in (b"no catalogue", data[:60]):
        with pytest.raises(ElfError, match="not a gettext catalogue"):
            list(catalogues.messages(broken))


def test_wesnoth_tells_stories() -> None:
    text = "The old king rode alone into the dark northern woods"
    found = catalogues.story(mo_file({text: "x", "Too short": "y"}))
    assert fields(found, "text", "src") == [(text, "wesnoth-story")]


def test_ding() -> None:
    lines = [
        "# comment",
        "Abseits {n} [sport] | im Abseits stehen :: offside | to be offside (in a game)",
        "Es ist gut (so).; Gut. :: It is good.; Fine.",
        "jdm. helfen wollen alle :: to want to help sb.",
        "eins | zwei :: one",
    ]
    rows = list(ding.rows(lines))
    assert [(s, r["de"], r["en"], r.get("tier")) for s, r in rows] == [
        ("trans_ding_words", "Abseits", "offside", None),
        ("trans_clean", "im Abseits stehen", "to be offside", "A-ding-phrase"),
        ("trans_clean", "Es ist gut.", "It is good.", "A-ding-sentence"),
    ]


def blocks(*texts: str, tag: str = "p") -> list[Block]:
    return [Block(tag, "", text) for text in texts]


def test_blocks_of_a_page() -> None:
    page = (
        "<html><h1 id=a>Title</h1><p>One <b>bold</b> word.<p>Two<pre>code()</pre><li>Three</html>"
    )
    assert [(b.tag, b.id, b.text) for b in guides.blocks(page)] == [
        ("h1", "a", "Title"),
        ("p", "", "One bold word."),
        ("p", "", "Two"),
        ("li", "", "Three"),
    ]


def test_alignment_leaves_out_what_has_no_partner() -> None:
    german = blocks(
        "Der erste Absatz steht hier.",
        "Nur auf Deutsch gesagt, und zwar lang " * 3,
        "Der 2. Absatz.",
    )
    english = blocks("The first paragraph is here.", "The 2nd paragraph.")
    assert [(d.text[:12], e.text[:12]) for d, e in align(german, english)] == [
        ("Der erste Ab", "The first pa"),
        ("Der 2. Absat", "The 2nd para"),
    ]
    ids = [Block("p", "x", "Eins"), Block("p", "y", "Zwei")]
    other = [Block("p", "y", "Two"), Block("p", "z", "New"), Block("p", "x", "One")]
    assert [(d.text, e.text) for d, e in align(ids, other)] == [("Eins", "One"), ("Zwei", "Two")]
    assert align([], []) == []


def test_help_summary() -> None:
    page = "<page><info><desc>Turn the page around.</desc></info><p>{}</p></page>".format(
        "A word. " * 12
    )
    ((_, row),) = guides.help_summary(page, "x.page")
    assert row["summary"] == "Turn the page around."


def test_manual_pages() -> None:
    english = (
        ".TH X 1\n.SH NAME\nx \\- show the contents of files\n.SH DESCRIPTION\n"
        "The program \\fBx\\fP reads files.\nIt prints them.\n.PP\n.nf\ncode here\n.fi\n"
        "A second\n.B bold\nparagraph is here now.\n"
    )
    german = (
        ".TH X 1\n.SH BEZEICHNUNG\nx \\- zeigt den Inhalt\n.SH BESCHREIBUNG\n"
        "Das Programm \\fBx\\fP liest Dateien.\nEs gibt sie aus.\n.PP\n.nf\ncode here\n.fi\n"
        "Ein zweiter\n.B fetter\nAbsatz ist jetzt hier.\n.SH ÜBERSETZUNG\nVon mir.\n"
    )  # fmt: skip
    assert fields(manual.translations(german, english, "x"), "de", "en")[1:] == [
        ("Das Programm x liest Dateien.", "The program x reads files."),
        ("Es gibt sie aus.", "It prints them."),
        ("Ein zweiter fetter Absatz ist jetzt hier.", "A second bold paragraph is here now."),
    ]
    long = english.replace("It prints them.", "It prints them. " * 8)
    ((_, row),) = manual.summary(long, "x")
    assert row["summary"] == "Show the contents of files."


def test_bibles() -> None:
    kjv = (
        "\nGenesis 1\n\n  1 In the beginning God [created]\nthe heaven.\n"
        "  2 And it was so always.\n1 Samuel 2\n  3 Talk no more so very proudly.\n"
    )
    old = bible.king_james(kjv.splitlines(keepends=True))
    assert old[1, 1, 1] == "In the beginning God created the heaven."
    assert old[2, 2, 3] == "Talk no more so very proudly."
    web = bible.world_english(
        'field,f,f,f,f\n"1","1","1","1","At first God{note ""x""} made the sky."\n'
    )
    assert web == {(1, 1, 1): "At first God made the sky."}
    pairs = [row for stem, row in bible.verse_pairs(old, web) if stem == "rewrite_kjv_web"]
    assert [(r["old"], r["modern"]) for r in pairs] == [(old[1, 1, 1], web[1, 1, 1])]


def test_dictionaries() -> None:
    wordnet = '0001 04 n 01 run 0 000 | move fast on foot; "the boy ran very home"; "go"  \n'
    assert fields(prose.wordnet([wordnet, "  1 licence | x"]), "text", "src") == [
        ("move fast on foot", "wordnet-gloss"),
        ("the boy ran very home", "wordnet-example"),
    ]
    gcide = (
        'Abdomen \\Ab*do"men\\, n.\n   1. (Anat.) The belly, or that part of the {body} below.\n'
        "      [1913 Webster]\n\n            The quick flood rose over all the hills. --Milton.\n"
        "      [1913 Webster]\n"
    )
    assert fields(prose.gcide(gcide), "text", "src") == [
        ("The belly, or that part of the body below.", "gcide-def"),
        ("The quick flood rose over all the hills.", "gcide-quote"),
    ]
    foldoc = (
        "actor\n\n   <x> In {object} programming an actor is an object which exists "
        "as a process.\n\n   (1994-11-08)\n"
    )
    assert fields(prose.foldoc(foldoc), "text") == [
        ("In object programming an actor is an object which exists as a process.",)
    ]


def test_quotations_and_plays() -> None:
    fortunes = (
        "A wise man says nothing today.\n\t\t-- Nobody\n%\nShort.\n%\nAnother line of five words.\n"
    )
    assert fields(prose.fortunes(fortunes), "text") == [
        ("A wise man says nothing today.",),
        ("Another line of five words.",),
    ]
    play = "Header\n*** START OF IT ***\n\n{}\n\nThe copyright {}\n\n*** END OF\n\n{}".format(
        *("word " * 12,) * 3
    )
    assert fields(prose.gutenberg(play), "src") == [("shakespeare-milton",)]
    table = "│ a │ b │\n\n" + "word " * 12
    assert len(list(prose.paragraphs(table, "jargon"))) == 1
