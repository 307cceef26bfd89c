"""Code as a sequence of canonical tokens: the syntax tree without what its author was free in.

Free are layout, comments, docstrings, annotations, the spelling of imports,
the order of top-level definitions, and all names of one's own: locals,
attributes, helpers, constants. Constants stand where they are used. Names of
torch stay, as do all calls, their order and their values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from opsgen.source.bindings import (
    Bindings,
    Function,
    changes_nothing,
    class_attributes,
    fold,
    is_plain_init,
    is_straight,
    registered_name,
    says_nothing,
)

ENTRY_POINTS = ("get_inputs", "get_init_inputs")
_OWN = frozenset({"forward"})


class Canon:
    """The tokens of one source.

    The first character of a token tells its kind: `%` a local, `@` an attribute of an own
    class, `&` an own top-level definition, `#` a number; each with its number in order of
    first mention, or its value. All others are names that mean the same everywhere.

    Attributes:
        tokens: Those of the whole source, in preorder: `Model` and what it mentions, the two
            entry points with what is left to mention, statements that run at import.
        num_model_tokens: How many belong to `Model` and what it mentions.
        words: Names that the `Model` part calls, last component only, in order of evaluation.
        makers: What each attribute is made by, `torch.nn.Linear` for instance.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tokens: list[str] = []
        self.words: list[str] = []
        self.makers: dict[str, str] = {}
        self._bindings = Bindings(tree)
        self._scopes: list[dict[str, str]] = []
        self._attributes = {
            name: class_attributes(node) for name, node in self._bindings.classes.items()
        }
        self._class = ""
        self._counts: dict[str, int] = {}
        self._named: dict[tuple[str, str], str] = {}
        self._queue: list[str] = []
        self._is_static = False
        known = self._bindings.definitions
        self._emit_from(["Model"] if "Model" in known else list(known))
        self._all([] if "Model" in known else self._bindings.constants.values())
        self.num_model_tokens, num_words = len(self.tokens), len(self.words)
        self._emit_from([name for name in ENTRY_POINTS if name in known])
        self._body(self._bindings.statements)
        del self.words[num_words:]

    def _number(self, kind: str, group: str, name: str) -> str:
        """Return the token of an own name, numbered in order of first mention."""
        key = (kind + group, name)
        if key not in self._named:
            self._counts[kind] = self._counts.get(kind, -1) + 1
            self._named[key] = f"{kind}{self._counts[kind]}"
        return self._named[key]

    def _mention(self, name: str) -> str:
        if ("&", name) not in self._named:
            self._queue.append(name)
        return self._number("&", "", name)

    def _attribute(self, owner: str, name: str) -> str:
        token = self._number("@", owner, name)
        if token not in self.makers:
            maker = self._attributes[owner].get(name)
            self.makers[token] = (self._dotted(maker) if maker is not None else None) or ""
        return token

    def _local(self, name: str) -> str | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _declare(self, name: str) -> str:
        self._counts["%"] = self._counts.get("%", -1) + 1
        self._scopes[-1][name] = token = f"%{self._counts['%']}"
        return token

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the full name of an attribute chain that begins at an import."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or self._local(node.id) is not None:
            return None
        base = self._bindings.imports.get(node.id)
        if base is None and node.id in self._bindings.constants:
            base = self._dotted(self._bindings.constants[node.id])
        return ".".join((base, *reversed(names))) if base else None

    def _emit_from(self, roots: list[str]) -> None:
        for name in roots:
            self._mention(name)
        while self._queue:
            definitions = self._bindings.definitions[self._queue.pop(0)]
            for node in definitions:
                self._counts.pop("%", None)
                self._visit(node)

    def _visit(self, node: ast.AST) -> None:
        special = _VISITORS.get(type(node))
        if special is not None:
            special(self, node)
            return
        self.tokens.append(type(node).__name__)
        for name in node._fields:
            value = getattr(node, name)
            if isinstance(value, list):
                self.tokens.append(f"[{len(value)}")
                self._all(value)
            elif isinstance(value, ast.AST):
                if not isinstance(value, ast.expr_context):
                    self._visit(value)
            else:
                self.tokens.append("-" if value is None else str(value))

    def _all(self, nodes: Iterable[object]) -> None:
        for node in nodes:
            if isinstance(node, ast.AST):
                self._visit(node)
            else:
                self.tokens.append("-" if node is None else str(node))

    def _body(self, statements: list[ast.stmt]) -> None:
        kept = [one for one in statements if not says_nothing(one)]
        self.tokens.append(f"{{{len(kept)}")
        self._all(kept)

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    def _name(self, node: ast.Name) -> None:
        local = self._local(node.id)
        if isinstance(node.ctx, ast.Store) and self._scopes:
            is_new = local is None or (self._is_static and local[0] == "%")
            self.tokens.append(self._declare(node.id) if is_new else str(local))
        elif local is not None:
            self.tokens.append(local)
        elif node.id in self._bindings.constants:
            scopes, self._scopes = self._scopes, []
            self._visit(self._bindings.constants[node.id])
            self._scopes = scopes
        elif node.id in self._bindings.definitions:
            self.tokens.append(self._mention(node.id))
        else:
            self.tokens.append(self._bindings.imports.get(node.id, node.id))

    def _chain(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted is not None:
            self.tokens.append(dotted)
            return
        owner = self._owner(node)
        is_self = self._is_self(node.value)
        public = f"self.{node.attr}" if is_self else f".{node.attr}"
        self.tokens.append(public if owner is None else self._attribute(owner, node.attr))
        if is_self:
            return
        if owner is not None:
            self.tokens.append("of")
        self._visit(node.value)

    def _is_self(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self._local(node.id) == "self"

    def _owner(self, node: ast.Attribute) -> str | None:
        """Return the own class that defines an attribute; None for public names."""
        if self._is_self(node.value):
            # It may be inherited from another of the own classes.
            owners = [self._class, *self._attributes]
        else:
            owners = [name for name in self._attributes if name != "Model"]
        if node.attr in _OWN or node.attr.startswith("__"):
            return None
        return next((o for o in owners if node.attr in self._attributes.get(o, ())), None)

    def _constant(self, node: ast.Constant) -> None:
        is_number = isinstance(node.value, int | float | complex)
        is_number = is_number and not isinstance(node.value, bool)
        self.tokens.append(f"#{node.value!r}" if is_number else f"={node.value!r}")

    def _operation(self, node: ast.BinOp | ast.UnaryOp) -> None:
        number = fold(node, self._number_of)
        if number is not None:
            self.tokens.append(f"#{number!r}")
            return
        kind = type(node.op).__name__
        self.tokens.append(kind)
        operands = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        self._all(operands)
        if not changes_nothing(node):
            self.words.append(kind.lower())

    def _number_of(self, name: str) -> ast.expr | None:
        return self._bindings.constants.get(name) if self._local(name) is None else None

    def _call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            self.tokens.append("super")
            return
        if is_plain_init(node):
            self.tokens.append("super().__init__()")
            return
        names = {word: self._keyword(node.func, word.arg) for word in node.keywords}
        self.tokens.append(f"Call/{len(node.args)}/{len(names)}")
        self._visit(node.func)
        place = len(self.tokens)
        self._all(node.args)
        self._rename_registered(node, place)
        for word in sorted(names, key=names.__getitem__):
            self.tokens.append(names[word])
            self._visit(word.value)
        self._word(node.func)

    def _word(self, func: ast.expr) -> None:
        """Note what was called, by the last part of its name."""
        name = self._dotted(func)
        if name is None and isinstance(func, ast.Attribute):
            owner = self._owner(func)
            name = self.makers[self._attribute(owner, func.attr)] if owner else func.attr
        if name and not name.startswith("__"):
            self.words.append(name.rpartition(".")[2].replace("_", "").lower())

    def _keyword(self, func: ast.expr, name: str | None) -> str:
        """Return the token of a keyword: for own functions the place of the argument."""
        if name is None:
            return "~"
        if isinstance(func, ast.Name) and self._local(func.id) is None:
            names = self._bindings.parameters(func.id)
            if name in names:
                return f"arg{names.index(name)}"
        return f"{name}="

    def _rename_registered(self, node: ast.Call, place: int) -> None:
        name = registered_name(node)
        if name is not None and name in self._attributes.get(self._class, ()):
            self.tokens[place] = self._attribute(self._class, name)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        self.tokens.append(f"{type(node).__name__}/{len(node.generators)}")
        with self._scope():
            for loop in node.generators:
                self._visit(loop.iter)
                self._visit(loop.target)
                self._all([f"[{len(loop.ifs)}", *loop.ifs])
            self._all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])

    def _assign(self, node: ast.Assign) -> None:
        self.tokens.append(f"Assign/{len(node.targets)}")
        self._visit(node.value)
        self._all(node.targets)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self.tokens.append("Assign/1" if node.value is not None else "Assign/0")
        if node.value is not None:
            self._visit(node.value)
        self._visit(node.target)

    def _augmented(self, node: ast.AugAssign) -> None:
        kind = type(node.op).__name__
        self.tokens.append(f"{kind}=")
        self._visit(node.value)
        was_static, self._is_static = self._is_static, False
        self._visit(node.target)
        self._is_static = was_static
        self.words.append(kind.lower())

    def _loop(self, node: ast.For) -> None:
        self.tokens.append("For")
        self._visit(node.iter)
        self._visit(node.target)
        self._body(node.body)
        self._body(node.orelse)

    def _branch(self, node: ast.If | ast.While) -> None:
        self.tokens.append(type(node).__name__)
        self._visit(node.test)
        self._body(node.body)
        self._body(node.orelse)

    def _function(self, node: Function) -> None:
        if self._scopes:
            self.tokens.append(self._declare(node.name))
        self._routine(node, is_method=False)

    def _routine(self, node: Function, *, is_method: bool) -> None:
        self.tokens.append(f"def/{len(node.decorator_list)}")
        self._all(node.decorator_list)
        was_static = self._is_static
        with self._scope():
            names = {ast.unparse(one) for one in node.decorator_list}
            self._arguments(node.args, has_self=is_method and "staticmethod" not in names)
            self._is_static = is_straight(node)
            self._body(node.body)
        self._is_static = was_static

    def _lambda(self, node: ast.Lambda) -> None:
        self.tokens.append("Lambda")
        with self._scope():
            self._arguments(node.args, has_self=False)
            self._visit(node.body)

    def _arguments(self, args: ast.arguments, *, has_self: bool) -> None:
        names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
        rest = [arg.arg for arg in (args.vararg, args.kwarg) if arg is not None]
        shape = f"{len(names)}/{len(args.defaults)}/{len(args.kwonlyargs)}"
        stars = "*" * (args.vararg is not None) + "~" * (args.kwarg is not None)
        self.tokens.append(f"args/{shape}{stars}")
        self._all((*args.defaults, *args.kw_defaults))
        if has_self and names:
            self._scopes[-1][names.pop(0)] = "self"
        for name in (*names, *(arg.arg for arg in args.kwonlyargs), *rest):
            self._declare(name)

    def _class_def(self, node: ast.ClassDef) -> None:
        outer, self._class = self._class, node.name
        methods = [one for one in node.body if isinstance(one, Function)]
        others = [
            one for one in node.body if not isinstance(one, Function) and not says_nothing(one)
        ]
        methods.sort(key=lambda one: {"__init__": 0, "forward": 1}.get(one.name, 2))
        self.tokens.append(f"class/{len(node.bases)}/{len(others)}/{len(methods)}")
        self._all((*node.decorator_list, *node.bases, *(word.value for word in node.keywords)))
        self._class_level(node.name, others)
        for method in methods:
            is_public = method.name in _OWN or method.name.startswith("__")
            label = method.name if is_public else self._attribute(node.name, method.name)
            self.tokens.append(label)
            self._counts.pop("%", None)
            self._routine(method, is_method=True)
        self._class = outer

    def _class_level(self, name: str, statements: list[ast.stmt]) -> None:
        stored = [
            inner.id
            for one in statements
            for inner in ast.walk(one)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
        ]
        known = [each for each in stored if each in self._attributes.get(name, ())]
        self._scopes.append({each: self._attribute(name, each) for each in known})
        was_static, self._is_static = self._is_static, False
        self._all(statements)
        self._is_static = was_static
        self._scopes.pop()


_VISITORS: dict[type[ast.AST], Callable[[Canon, Any], None]] = {
    ast.Name: Canon._name,
    ast.Attribute: Canon._chain,
    ast.Constant: Canon._constant,
    ast.BinOp: Canon._operation,
    ast.UnaryOp: Canon._operation,
    ast.Call: Canon._call,
    ast.ListComp: Canon._comprehension,
    ast.SetComp: Canon._comprehension,
    ast.GeneratorExp: Canon._comprehension,
    ast.DictComp: Canon._comprehension,
    ast.Assign: Canon._assign,
    ast.AnnAssign: Canon._annotated,
    ast.AugAssign: Canon._augmented,
    ast.For: Canon._loop,
    ast.If: Canon._branch,
    ast.While: Canon._branch,
    ast.FunctionDef: Canon._function,
    ast.AsyncFunctionDef: Canon._function,
    ast.Lambda: Canon._lambda,
    ast.ClassDef: Canon._class_def,
}
