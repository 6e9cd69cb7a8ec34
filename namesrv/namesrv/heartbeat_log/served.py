"""Which routes was a connection given?"""


class ServedAnswers(dict[str, object]):
    """Topic to the very answer that it got last, which the fast lane compares with `is`.

    Kept at the connection, so that it goes with it. A dict itself: the fast lane looks into it with every pull.
    """

    __slots__ = ("epoch", "revisions")

    def __init__(self, epoch: int) -> None:
        super().__init__()
        # those of an earlier epoch than the log's were forgotten
        self.epoch = epoch
        # topic -> the revision it got last
        self.revisions: dict[str, int] = {}
