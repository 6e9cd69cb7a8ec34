"""What can be wrong that is not a bug of ours?"""


class UsageError(Exception):
    """The user can put it right; the message is one line that says what is wrong and where."""
