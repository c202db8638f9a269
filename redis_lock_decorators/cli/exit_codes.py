"""The exit codes of all verbs, after the conventions of ``sysexits.h`` and of shells."""

#: Done; ``run --on-busy skip``: also if another one holds the lock.
OK = 0
#: ``show``: the lock is free; ``break``: nothing was released; ``doctor``: something breaks locks;
#: ``demo``: a counter is wrong with the lock.
NO = 1
#: Wrong use of the command line.
USAGE = 2
#: The server cannot be reached, refuses the user, or lacks a command; or an unexpected error.
UNAVAILABLE = 69
#: ``run``: the lock was lost while the command ran.
LOST = 70
#: The output cannot be written.
OUTPUT = 74
#: ``run``: another one holds the lock.
BUSY = 75
#: ``run``: the command cannot be executed.
NOT_EXECUTABLE = 126
#: ``run``: the command was not found.
NOT_FOUND = 127
#: Added to the number of the signal that ended the program, or the command of ``run``.
SIGNALLED = 128
#: Interrupted by Ctrl-C.
INTERRUPTED = SIGNALLED + 2
#: The program that read the output has ended (SIGPIPE).
BROKEN_PIPE = SIGNALLED + 13
