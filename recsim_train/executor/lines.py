"""The connections of one client, which go on side by side.

What the system does not take at once is sent to all servers as each of them reads, and answers are
taken as they come: a link that waited until another server is served would be idle, and with it,
where many clients do so, a server. Where nothing can be gained by looking, which costs a call of
the system, one connection after the other is waited for.
"""

from __future__ import annotations

import select
from collections.abc import Mapping

from recsim_train.executor.connections import Asker


class Lines:
    """Used by one thread. Everything here raises ConnectionError where a server is gone and
    TimeoutError where none of those that something is to come from or to go to does anything."""

    def __init__(self) -> None:
        self.askers: list[Asker] = []

    def send(self) -> None:
        """Until the system has taken all that has been asked."""
        while unsent := [asker for asker in self.askers if asker.unsent]:
            going = [asker for asker in self.askers if asker.under_way]
            if len(going) == 1 and going[0].under_way == select.POLLOUT:
                unsent[0].flush()
            else:
                _go_on(going)

    def wait(self, due: Mapping[Asker, int]) -> None:
        """Until each of these connections has brought the answer of this number."""
        for asker in self.askers:
            if asker.unsent or asker.large:
                self._wait_for_any(due)
                break
        for asker, number in due.items():
            asker.wait(number)

    def _wait_for_any(self, due: Mapping[Asker, int]) -> None:
        """As `wait`, until one after the other will do."""
        while any(asker.unsent or asker.large for asker in self.askers):
            going = [asker for asker in self.askers if asker.under_way]
            if len(going) == 1 or all(asker.answered >= due[asker] for asker in due):
                break
            _go_on(going)
        self.send()


def _go_on(askers: list[Asker]) -> None:
    """Wait until one of them can go on; all that can do."""
    poll, by_file = select.poll(), {}
    for asker in askers:
        by_file[file := asker.fileno()] = asker
        poll.register(file, asker.under_way)
    timeout = askers[0].timeout
    ready = poll.poll(None if timeout is None else timeout * 1e3)
    if not ready:
        raise askers[0].late()
    for file, events in ready:
        by_file[file].go_on(events)
