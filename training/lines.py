"""A few lines written for this project: enough to see that training works, with no download."""

from __future__ import annotations

from collections.abc import Iterator

from training.corpus import Example

PAIRS = {
    "translate": (
        ("Das Haus ist alt.", "The house is old."),
        ("Der Hund schläft im Garten.", "The dog sleeps in the garden."),
        ("Wir gehen morgen in die Stadt.", "We are going to town tomorrow."),
        ("Das Wasser ist kalt.", "The water is cold."),
        ("Sie liest ein gutes Buch.", "She is reading a good book."),
        ("Die Kinder spielen am Fluss.", "The children play by the river."),
        ("Es regnet seit drei Tagen.", "It has been raining for three days."),
        ("Der Zug kommt um sieben Uhr an.", "The train arrives at seven o'clock."),
    ),
    "summarise": (
        ("This program shows pictures. It can turn them and make them smaller.",
         "a viewer for pictures"),
        ("A small game for two players. You move stones over a board of eight rows.",
         "a board game for two"),
    ),
    "modernise": (
        ("Thou art my friend.", "You are my friend."),
        ("Whither goest thou?", "Where are you going?"),
        ("He hath no money.", "He has no money."),
        ("Ye shall see the sea.", "You will see the sea."),
    ),
}  # fmt: skip
PLAIN = (
    "The old man walked slowly up the hill.",
    "A bird sang in the tree behind the house.",
    "She opened the window and looked at the sea.",
    "In winter the days are short and the nights are long.",
    "The boat left the harbour before the sun rose.",
    "He wrote a letter to his sister every week.",
    "The market opens at eight and closes at noon.",
    "They found a narrow path between the rocks.",
)


def examples() -> Iterator[Example]:
    """The lines as corpus examples; the group is "lines"."""
    for task, pairs in PAIRS.items():
        for source, target in pairs:
            yield Example(task, "lines", source, target)
    for text in PLAIN:
        yield Example("plain", "lines", text, "")
