"""Where things lie in the block of memory of a network; as in `recsim_train.sim.fluid.layout`.

Times are seconds, sizes bytes: of frames where a port is meant, of payload where a message is.
A list is a chain of records, from its first to its last; 0 is nobody.
"""

from __future__ import annotations

# The head of the block.
(
    TOP,  # first word never used
    NOW,
    EVENTS,  # heap of (time, what) pairs: its words, its length
    EVENTS_SIZE,
    FREE_FRAME,  # chains of records to use again
    FREE_UNIT,
    DONE,  # messages that have arrived
    DONE_LAST,
    HEAD_WORDS,
) = range(9)

# What an event is for: the record's address times four and one of these.
SERVE, ARRIVE, EXPIRE, ACKNOWLEDGE = range(4)

# A port, where what leaves by a link waits.
(
    P_RATE,
    P_BURST,  # bytes that may leave at once after a pause
    P_OWES,  # whether a frame leaves as long as nothing is owed, not when it is paid
    P_READY,  # when the next frame may leave
    P_WAKES,  # whether an event will look
    P_LIMIT,  # bytes that each of its queues holds
    P_FAIR,  # whether its queues take turns by bytes
    P_FIRST,  # queues that hold something
    P_LAST,
    P_DROPS,
    P_CARRIED,  # bytes
    P_WORDS,
) = range(12)

# A queue of a port.
(
    Q_PORT,
    Q_FIRST,  # frames
    Q_LAST,
    Q_BYTES,
    Q_LEFT,  # bytes that it may send before the next queue's turn
    Q_NEXT,
    Q_WORDS,
) = range(7)

# A frame, or several that are handled as one. F_CARRIED: bytes of it and of its like, at a port.
F_CONNECTION, F_UNIT, F_NUMBER, F_SIZE, F_CARRIED, F_HOP, F_NEXT, F_WORDS = range(8)

# A unit of a message, which one frame carries. U_HELD: who still needs it, sender or receiver.
(
    U_SIZE,
    U_FRAMES,
    U_MESSAGE,  # which it is the end of
    U_PLACE,  # in the stream
    U_NUMBER,  # of its last transmission
    U_SENT,
    U_GOT,
    U_AGAIN,  # whether it was sent more than once
    U_HELD,
    U_NEXT,  # of those on their way, or of those that are lost
    U_AFTER,  # of those that have come before one that has not
    U_WORDS,
) = range(12)

M_LEFT, M_NEXT, M_WORDS = range(3)  # a message: bytes not yet cut into units

# One direction of a connection.
(
    C_HOPS,  # queues there, and back, each with how many times it carries a frame
    C_COUNT,  # of each
    C_LATENCY,  # after each of them
    C_MOST,  # bytes of payload that are handled as one
    C_FIRST,  # messages of which something is to be sent
    C_LAST,
    C_AWAY,  # units on their way, in the order in which they were sent
    C_AWAY_LAST,
    C_FLIGHT,  # their frames
    C_LOST,  # units that are to be sent again, in the stream's order
    C_LOST_FRAMES,
    C_PLACE,  # of the next new unit
    C_NUMBER,  # of the last transmission
    C_WAITS,  # frames that wait at the sender's port
    C_WINDOW,  # frames that may be on their way
    C_THRESHOLD,  # of slow start
    C_GROWN,  # frames acknowledged since the window last grew
    C_ROUND,  # round-trip time, and how much it differs
    C_VARIES,
    C_PACE,  # bytes per second at which a window would leave in a round trip, and some more
    C_FULL,  # whether the window held something back in this round
    C_PEAK,  # most frames on their way in it
    C_ROUND_END,  # place of the unit that ends it
    C_USED,  # most frames of the window that were used since ...
    C_USED_SINCE,
    C_RECOVERS,  # until which transmission; 0: not
    C_SPOKEN,  # when it last sent
    C_EXPIRES,  # when what is on its way is taken for lost; inf: nothing is
    C_WATCHED,  # when an event looks; inf: none will
    C_PROBES,  # whether a last unit is sent again then
    C_TRIES,
    C_EXPECTS,  # receiver: place of the next unit
    C_EARLY,  # units that came before it
    C_UNSAID,  # frames that it has not acknowledged
    C_CAME,  # last transmission
    C_SAYS,  # when it acknowledges at the latest; inf: nothing is to be
    C_SAYS_WATCHED,
    C_WORDS,
) = range(38)
