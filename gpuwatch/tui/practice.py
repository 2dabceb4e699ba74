"""A practice job under the dashboard: what is wrong with it, and the knobs that a key turns."""

from __future__ import annotations

from typing import Protocol


class Practice(Protocol):
    """What the dashboard needs of one. All texts are the project's own or clean."""

    @property
    def name(self) -> str:
        """The cause, as its rule is called."""
        ...

    @property
    def says(self) -> str:
        """What is wrong, in a few words."""
        ...

    @property
    def turns(self) -> str:
        """What the key changes, from now on: ``num_workers 1 -> 4``; empty: nothing."""
        ...

    @property
    def cured(self) -> bool: ...

    @property
    def ended(self) -> bool:
        """The job has: nothing can be turned any more."""
        ...

    @property
    def can_be_named(self) -> bool:
        """Whether the diagnosis can find it on this machine."""
        ...

    @property
    def after_seconds(self) -> float:
        """It does so about that long after the first step."""
        ...

    @property
    def press(self) -> str | None:
        """Which key that takes, in a few words."""
        ...

    @property
    def note(self) -> str | None:
        """What cannot be seen on this machine."""
        ...

    def look(self) -> bool:
        """Find out what is known only once the job runs; whether there is something new."""
        ...

    def turn(self) -> None:
        """Turn the knobs back, or ill again. Raises ``OSError``."""
        ...
