"""What do the words of the page mean?"""

from typing import Final

from namesrv_spark_jobs.report.html.elements import Html, card, element, joined

_TERMS: Final = {
    "life": (
        "Life of a broker",
        """From its first heartbeat (or registration) on one NameServer to its removal there. It is removed
        because it was silent for longer than its expiry, because its connection closed, because it said
        goodbye, or because another took its place.""",
    ),
    "registry": (
        "Registry staleness",
        """From the last heartbeat to the removal: how long the NameServer may have handed out the route of a
        dead broker. The death itself came up to one heartbeat period after the last heartbeat, so the true
        time is between this and "at least". It is nought when the broker said goodbye.""",
    ),
    "client": (
        "Client staleness",
        """From the last heartbeat to the moment in which a client, for one topic, got a route without the
        broker: registry staleness and the wait for the next poll. A client that left, or whose log ended,
        before that is censored: counted, and not in the percentiles.""",
    ),
    "bound": (
        "Bound",
        """The longest that the settings allow: expiry, one scan, and for clients one poll of 30 s. An interval
        is over its bound when it was longer than expiry and scan explain, delays of the server itself
        included.""",
    ),
    "false": (
        "False eviction",
        "A broker was removed for silence or a closed connection, and the same process was heard again.",
    ),
    "near": ("Near miss", "A broker was silent for more than two thirds of its expiry, and came back in time."),
    "pulls": (
        "Answers with a dead broker",
        """Routes that were handed out between the last heartbeat and one scan after the removal, and still had
        the broker.""",
    ),
    "divergence": (
        "Divergence",
        "Time during which one NameServer had a broker and another, running at the same time, had it not.",
    ),
    "percentile": ("Percentiles", "p99 is the value that 99 of 100 stay below; between two values it is linear."),
}


def terms_card() -> Html:
    """The definitions; the key figures lead here."""
    entries = (
        joined([element("dt", word, id=f"term-{name}"), element("dd", meaning)])
        for name, (word, meaning) in _TERMS.items()
    )
    words = joined(["Exact to the millisecond in ", element("code", "docs/staleness.md"), " of namesrv."])
    note = element("p", words, kind="note")
    return card("terms", "What the words mean", element("dl", joined(entries), kind="terms"), note)
