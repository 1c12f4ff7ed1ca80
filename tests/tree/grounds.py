"""Ground to walk on in tests: a full tree with relevances that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clew.errors import ModelError


@dataclass
class Ground:
    """`fan` children everywhere, `levels` of inner nodes; leaf n is worth `worth(n)`."""

    fan: int = 4
    levels: int = 3
    worth: Callable[[int], float] = lambda n: 1.0 / (1 + n)
    masked: set[int] = field(default_factory=set)
    branching: int = 20

    @property
    def leaves(self) -> int:
        return self.fan**self.levels

    def _place(self, node: int) -> tuple[int, int]:
        """Level and number within it."""
        level, first = 0, 0
        while node >= first + self.fan**level:
            first += self.fan**level
            level += 1
        return level, node - first

    def children(self, node: int) -> list[int]:
        level, number = self._place(node)
        mine = range(number * self.fan, (number + 1) * self.fan)
        if level == self.levels - 1:
            return [~n for n in mine]
        first = sum(self.fan**n for n in range(level + 1))
        return [first + n for n in mine]

    def below(self, key: int) -> range:
        if key < 0:
            return range(~key, ~key + 1)
        level, number = self._place(key)
        size = self.fan ** (self.levels - level)
        return range(number * size, (number + 1) * size)

    def open(self, key: int) -> bool:
        return any(n not in self.masked for n in self.below(key))

    def share(self, node: int) -> float:
        mine = self.below(node)
        return sum(n not in self.masked for n in mine) / len(mine)

    def prior(self, keys: Sequence[int]) -> list[float]:
        return [max(self.worth(n) for n in self.below(key)) for key in keys]


@dataclass
class Says:
    """Scores by what a node's best leaf is worth, through `say`."""

    ground: Ground
    absolute: bool = True
    say: Callable[[float, int], float] = lambda worth, slate: worth
    fails: Callable[[int], bool] = lambda slate: False
    name: str = "teller"
    slates: list[tuple[int, ...]] = field(default_factory=list)

    def score(self, keys: Sequence[int]) -> list[float]:
        number = len(self.slates)
        self.slates.append(tuple(keys))
        if self.fails(number):
            raise ModelError("no answer this time")
        return [self.say(worth, number) for worth in self.ground.prior(keys)]
