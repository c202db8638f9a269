"""Classes of objects with different texts."""

from dataclasses import dataclass, field


class Bare:
    def method(self) -> None: ...


class Addressed:
    def __repr__(self) -> str:
        return f"Addressed({id(self)})" if not vars(self) else f"Addressed({vars(self)})"


class Slotted:
    __slots__ = ("tags",)

    def __repr__(self) -> str:
        return f"Slotted({self.tags!r})"


class Spoken:
    def __str__(self) -> str:
        return "order 7"


@dataclass
class Query:
    words: object = field(default_factory=list)


@dataclass
class Tagged:
    number: int
    tags: set[str]

    def __str__(self) -> str:
        return f"order {self.number}"


@dataclass
class Hidden:
    number: int
    tags: set[str] = field(repr=False)
