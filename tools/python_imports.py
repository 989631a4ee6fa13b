"""The imports of the Python package, for tools/check-folders."""
import ast
import collections

MOST_FILES = 15  # .py files of a folder


def check(root, find_cycle):
    """Yields the faults of python/penstock: imports that python/folders.txt does not allow, lines and entries that nothing
    needs, imports hidden in functions, cycles, and folders of too many files. Imports for type checkers alone don't count.
    """
    package = root / "python/penstock"
    if not package.is_dir():
        return
    modules = {_name(path.relative_to(package)): path for path in sorted(package.rglob("*.py"))}
    units, allowed = _units(modules), _allowed(root)
    uses = {name: {} for name in modules}  # by module: the modules that it imports, each with the place
    needed = {(unit, None) for unit in units.values()}
    for unit in sorted(set(units.values()) - allowed.keys()):
        yield f"python/folders.txt has no line for {unit}"
    for name, path in modules.items():
        for other, line, function in _imports(path, modules):
            place, unit, other_unit = f"{path.relative_to(root)}:{line}", units[name], units[other]
            if function not in ("", "__getattr__"):
                yield f"{place} imports {other} in the function {function}, which hides a cycle: import it at the top"
            if function != "__getattr__":  # of a package: what an installed package may lack
                uses[name].setdefault(other, place)
            if unit != other_unit and (unit, other_unit) not in needed and other_unit not in allowed.get(unit, ()):
                yield f"{place} imports {other}, which python/folders.txt does not allow for {unit}"
            needed.add((unit, other_unit))
    for unit, others in allowed.items():
        for entry in (None, *others):
            if (unit, entry) not in needed:
                yield f"python/folders.txt: {unit}: {'nothing has this name' if entry is None else f'nothing there imports {entry}'}; remove it"
    by_unit = collections.defaultdict(dict)
    for name, others in uses.items():
        for other, place in others.items():
            if units[name] != units[other]:
                by_unit[units[name]].setdefault(units[other], place)
    for what, graph in (("modules", uses), ("folders", by_unit)):
        cycle = find_cycle(graph)
        if cycle:
            links = (f"{user} -> {used} ({graph[user][used]})" for user, used in zip(cycle, cycle[1:]))
            yield f"{what} import each other: {', '.join(links)}"
            break
    for folder, count in collections.Counter(path.parent for path in modules.values()).items():
        if count > MOST_FILES:
            yield f"{folder.relative_to(root)} holds {count} files; {MOST_FILES} is the most: move some to a subfolder"


def _name(path):
    return str(path.parent if path.name == "__init__.py" else path.with_suffix("")).replace(".", "penstock", 1)


def _units(modules):
    """Returns, by module, what has a line of its own: its folder, or a module of penstock/ or penstock/torch/ itself."""
    return {name: "/".join(name.split("/")[: 2 if name.startswith("torch/") else 1]) for name in modules}


def _allowed(root):
    """Returns python/folders.txt: by name, what it may import."""
    lines = (root / "python/folders.txt").read_text().splitlines()
    rows = (line.split("|") for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): others.split() for name, others, _ in rows}


def _imports(path, modules):
    """Yields each import of a module of the package: its name, the line, and the function around it, or ""."""

    def visit(node, function):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from visit(child, child.name)
                continue
            found = []
            if isinstance(child, ast.Import):
                found = [(each.name, "") for each in child.names]
            elif isinstance(child, ast.ImportFrom):
                found = [(child.module or "", each.name) for each in child.names]
            for module, part in found:
                top, _, rest = module.replace(".", "/").partition("/")
                names = (f"{rest}/{part}".strip("/"), rest or "penstock")  # a module of a package, or something in one
                known = [] if top != "penstock" else [each for each in names if each in modules]
                if known and part not in ("_core", "_engine"):  # extension modules
                    yield known[0], child.lineno, function
            yield from visit(child, function)

    yield from visit(ast.parse(path.read_text()), "")
