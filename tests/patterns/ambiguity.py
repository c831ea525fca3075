"""Decides from the parse tree of a regular expression whether `re` can need more than linear time.

`re` tries the ways through a pattern one after the other. The number of ways to read one text is what makes it slow:

- exponential: some state can be left and reached again by two ways that read the same text, as in `(a+)+b`;
- polynomial: two states p and q in loops, and one text that leads from p to p, from p to q and from q to q, as in
  `a*a*b`. A scan (`search`, `sub`, `findall`) begins at every character, which is a loop before the pattern: `a+b`
  takes quadratic time in a scan and linear time in a match.

See Weber and Seidl, "On the degree of ambiguity of finite automata" (1991). The check is stricter than `re`: a
repetition that may be ten times or more counts as unbounded, atomic groups may be tried again, and a look-around is
judged exactly only if it is one character wide.
"""

import re
from collections import Counter
from functools import cache, cached_property
from itertools import product
from re import _constants as sre
from re import _parser

MANY = 10
SCANS = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})
END = None  # stands for the character after the end of the text and before its beginning


class Automaton:
    """Holds the ways through a pattern: nodes, edges that read a character, and edges that read none, with a guard."""

    def __init__(self, pattern, flags=0, method="fullmatch"):
        tree = _parser.parse(pattern, flags)
        self.flags = tree.state.flags
        self.text = bytes if isinstance(pattern, bytes) else str
        self.method = method
        self.problems = []
        self._nodes = 0
        self._free = {}  # node -> [(guard, node)]
        self._greedy = set()  # of these those that a possessive repetition ends with
        self._read = []  # (node, predicate, node)
        start = self._node()
        if method in SCANS:
            self._loop = self._edge(start, lambda _: True, self._node())
            self._skip(self._loop, start)
        self._end = self._sequence(tree, start, first=method not in SCANS)

    def _node(self):
        self._nodes += 1
        return self._nodes - 1

    def _skip(self, source, target, guard=None):
        self._free.setdefault(source, []).append((guard, target))

    def _edge(self, source, predicate, target):
        self._read.append((source, predicate, target))
        return target

    def _sequence(self, items, node, *, first=False):
        for op, value in items:
            node = self._item(op, value, node, first=first)
            first = first and op is sre.AT
        return node

    def _item(self, op, value, node, *, first):
        if op in {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}:
            return self._edge(node, self._predicate(op, value), self._node())
        if op is sre.GROUPREF:  # those of ours are one character long
            return self._edge(node, lambda _: True, self._node())
        if op is sre.SUBPATTERN:
            return self._sequence(value[-1], node)
        if op is sre.ATOMIC_GROUP:
            return self._sequence(value, node)
        if op is sre.BRANCH:
            after = self._node()
            for way in value[1]:
                self._skip(self._sequence(way, node), after)
            return after
        if op in {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}:
            return self._repeat(*value, node, possessive=op is sre.POSSESSIVE_REPEAT)
        after = self._node()
        self._skip(node, after, self._guard(op, value, first=first))
        return after

    def _repeat(self, low, high, items, node, *, possessive):
        if high is not sre.MAXREPEAT and high - low < MANY:
            for _ in range(min(low, 3)):
                node = self._sequence(items, node)
            after = self._node()
            for _ in range(high - low):
                self._skip(node, after)
                node = self._sequence(items, node)
            self._skip(node, after)
            return after
        for _ in range(min(low, 3)):
            node = self._sequence(items, node)
        # The way in and the way back are two nodes: one repetition in another can be left and begun again by both.
        inside, after = self._node(), self._node()
        back = self._sequence(items, inside)
        self._skip(node, inside)
        self._skip(back, inside)
        guard = None
        if possessive and len(items) == 1 and items[0][0] in {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}:
            repeated = self._predicate(*items[0])
            self._greedy |= {(node, after), (back, after)}
            guard = lambda _, following: following is END or not repeated(following)  # noqa: E731
        self._skip(node, after, guard)
        self._skip(back, after, guard)
        return after

    def _guard(self, op, value, *, first):
        if op is sre.AT:
            return self._position_guard(value)
        direction, items = value
        if len(items) == 1 and items[0][0] in {sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY}:
            matches, positive = self._predicate(*items[0]), op is sre.ASSERT
            if direction > 0:
                return lambda _, following: (following is not END and matches(following)) == positive
            return lambda before, _: (before is not END and matches(before)) == positive
        if not first and items.getwidth()[1] >= MANY * 3:
            self.problems.append("an unbounded look-around is tried at many positions")
        return None

    def _position_guard(self, code):
        def word(letter):
            return letter is not END and self._category(sre.CATEGORY_WORD, letter)

        def newline(letter):
            return letter is END or letter in {"\n", b"\n"}

        multiline = self.flags & re.MULTILINE
        return {
            sre.AT_BEGINNING: lambda before, _: newline(before) if multiline else before is END,
            sre.AT_BEGINNING_STRING: lambda before, _: before is END,
            sre.AT_END: lambda _, following: newline(following) if multiline else following is END,
            sre.AT_END_STRING: lambda _, following: following is END,
            sre.AT_BOUNDARY: lambda before, following: word(before) != word(following),
            sre.AT_NON_BOUNDARY: lambda before, following: word(before) == word(following),
        }[code]

    def _predicate(self, op, value):
        ignores_case = bool(self.flags & re.IGNORECASE)

        def cases(letter):
            if not ignores_case:
                return (letter,)
            return tuple({each for each in (letter, letter.lower(), letter.upper()) if len(each) == 1})

        if op is sre.ANY:
            return lambda letter: bool(self.flags & re.DOTALL) or letter not in {"\n", b"\n"}
        if op is sre.LITERAL:
            return lambda letter: any(ord(each) == value for each in cases(letter))
        if op is sre.NOT_LITERAL:
            return lambda letter: all(ord(each) != value for each in cases(letter))
        negated = value[0][0] is sre.NEGATE
        return lambda letter: any(self._in(value, each) for each in cases(letter)) != negated

    def _in(self, items, letter):
        for op, value in items:
            if op is sre.LITERAL and ord(letter) == value:
                return True
            if op is sre.RANGE and value[0] <= ord(letter) <= value[1]:
                return True
            if op is sre.CATEGORY and self._category(value, letter):
                return True
        return False

    def _category(self, code, letter):
        name = str(code).removeprefix("CATEGORY_")
        sign = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.removeprefix("NOT_")]
        text = "\\" + (sign.upper() if name.startswith("NOT_") else sign)
        flags = self.flags & (re.ASCII | re.UNICODE)
        return re.fullmatch(text.encode() if self.text is bytes else text, letter, flags) is not None

    @cached_property
    def letters(self):
        """Returns one character per class: the same edges read the characters of a class, and the same guards pass."""
        numbers = range(256) if self.text is bytes else (*range(256), 0x663, 0x2028, 0x4E00)
        every = [bytes([number]) if self.text is bytes else chr(number) for number in numbers]
        guards = [guard for ways in self._free.values() for guard, _ in ways if guard is not None]
        classes = {}
        for letter in every:
            reads = tuple(predicate(letter) for _, predicate, _ in self._read)
            passes = tuple((guard(letter, END), guard(END, letter), guard(letter, letter)) for guard in guards)
            classes.setdefault((reads, passes), letter)
        return list(classes.values())

    def _ways(self, node, before, following, free=frozenset()):
        """Counts the ways from a node to each other node that read no character. free: guards that pass."""
        counts = Counter()

        def go(at, passed):
            counts[at] += 1
            for guard, target in self._free.get(at, ()):
                passes = guard is None or (at, target) in free or guard(before, following)
                if target not in passed and passes:
                    go(target, passed | {target})

        go(node, frozenset({node}))
        return counts

    @cached_property
    def steps(self):
        """Maps (edge, letter) -> next letter -> the edges that may read it, with the number of ways."""
        table, todo, readers = {}, [(None, END)], {}
        for number, (source, predicate, _) in enumerate(self._read):
            for letter in filter(predicate, self.letters):
                readers.setdefault((source, letter), []).append(number)
        while todo:
            state = todo.pop()
            if state in table:
                continue
            edge, before = state
            table[state] = {}
            for letter in self.letters:
                ways = self._ways(0 if edge is None else self._read[edge][2], before, letter)
                reads = {number: count for node, count in ways.items() for number in readers.get((node, letter), ())}
                table[state][letter] = reads
                todo += ((number, letter) for number in reads)
        return table

    def _follows(self, state):
        return {(edge, letter) for letter, edges in self.steps[state].items() for edge in edges}

    @cached_property
    def reach(self):
        """Maps each state -> the states that it reaches."""
        reach = {}
        for state in self.steps:
            visited, todo = set(), [state]
            while todo:
                for after in self._follows(todo.pop()) - visited:
                    visited.add(after)
                    todo.append(after)
            reach[state] = visited
        return reach

    @cached_property
    def loops(self):
        """Maps each state in a loop -> the states that it reaches and that reach it."""
        return {
            state: frozenset(other for other in reached if state in self.reach[other])
            for state, reached in self.reach.items()
            if state in reached
        }

    @cached_property
    def _ending(self):
        """Returns the states in which a match that may end anywhere has succeeded, whatever follows."""
        return frozenset() if self.method == "fullmatch" else frozenset(filter(self._ends, self.loops))

    def _ends(self, state):
        node, before = self._read[state[0]][2], state[1]
        return all(self._ways(node, before, letter, self._greedy)[self._end] for letter in (*self.letters, END))

    def problem(self):
        """Returns why some text can need more than linear time. Returns None if every text takes linear time."""
        if self.problems:
            return self.problems[0]
        for state, together in self.loops.items():
            for letter, edges in self.steps[state].items():
                for edge, ways in edges.items():
                    if ways > 1 and (edge, letter) in together:
                        return f"a loop reads {letter!r} in two ways (exponential)"
        for p, q in product(self.loops, repeat=2):
            if p[1] != q[1] or q not in self.reach[p] or (p != q and q in self._ending):
                continue
            if self._exponential(p) if p == q else self._polynomial(p, q):
                kind = "exponential" if p == q else "polynomial"
                return f"two loops read the same text around {p[1]!r} ({kind})"
        return None

    def _exponential(self, state):
        visited, todo = set(), [(state, state, False)]
        while todo:
            one, two, apart = todo.pop()
            for letter, edges in self.steps[one].items():
                for left, right in product(edges, self.steps[two][letter]):
                    after = ((left, letter), (right, letter), apart or left != right)
                    if after == (state, state, True):
                        return True
                    if after not in visited and {after[0], after[1]} <= self.loops[state]:
                        visited.add(after)
                        todo.append(after)
        return False

    def _polynomial(self, p, q):
        goal, visited, todo = (p, q, q), set(), [(p, p, q)]
        # A loop that passes such a state is not tried again from the beginning.
        around_p, around_q = self.loops[p], self.loops[q] - self._ending
        while todo:
            one, two, three = todo.pop()
            for letter, edges in self.steps[one].items():
                firsts = [state for edge in edges if (state := (edge, letter)) in around_p]
                lasts = [state for edge in self.steps[three][letter] if (state := (edge, letter)) in around_q]
                if not firsts or not lasts:
                    continue
                seconds = [(edge, letter) for edge in self.steps[two][letter] if q in self.reach[edge, letter]]
                for after in product(firsts, seconds, lasts):
                    if after == goal:
                        return True
                    if after not in visited:
                        visited.add(after)
                        todo.append(after)
        return False


@cache  # several modules use the patterns of one scalar
def problem(pattern, flags=0, method="fullmatch"):
    return Automaton(pattern, flags, method).problem()
