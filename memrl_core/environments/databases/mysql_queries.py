"""Queries of MySQL arranged for SQLite: what their columns are called, what they show, and the order of groups."""

from __future__ import annotations

from sqlglot import exp

from memrl_core.environments.databases.mysql_values import Kinds, kind_of

ROW = "_rowid_"
"""SQLite's number of a row: rows that stand in a table from its beginning have the numbers 1, 2, 3 …"""


def arranged(statement: exp.Expr, kinds: Kinds) -> exp.Expr:
    """The same statement, changed in place, with every query in it arranged."""
    common = {one.alias.lower() for one in statement.find_all(exp.CTE)}
    statement = _without_outer_brackets(statement)
    for select in list(statement.find_all(exp.Select)):
        if _is_shown(select):
            _name_and_round(select, kinds)
        _having_without_groups(select)
        _groups_as_they_appear(select, common)
    return statement


def _without_outer_brackets(statement: exp.Expr) -> exp.Expr:
    """SQLite takes no brackets around a whole query, nor around the parts of a UNION."""
    while isinstance(statement, exp.Subquery):
        statement = statement.this.pop()
    for union in list(statement.find_all(exp.SetOperation)):
        for part in (union.this, union.expression):
            if isinstance(part, exp.Subquery):
                alone = any(part.this.args.get(key) is not None for key in ("order", "limit", "offset"))
                part.replace(exp.select("*").from_(part.this.subquery("part")) if alone else part.this)
    return statement


def base_tables(select: exp.Select, common: set[str]) -> list[exp.Table]:
    """The tables that a query reads itself, in the order in which it names them; `common` are the names of WITH."""
    sources = [select.args.get("from_"), *select.args.get("joins", ())]
    found = [source.this for source in sources if source is not None]
    within = [join.this for table in found for join in table.args.get("joins", ())]
    return [one for one in (*found, *within) if isinstance(one, exp.Table) and one.name.lower() not in common]


def _is_shown(select: exp.Select) -> bool:
    """Whether a query's columns are seen by name: it is the statement itself, or something selects from it."""
    parent = select.parent
    if isinstance(parent, exp.Subquery):
        parent = parent.parent
    return parent is None or isinstance(parent, exp.From | exp.Join | exp.CTE | exp.SetOperation)


def _name_and_round(select: exp.Select, kinds: Kinds) -> None:
    """Columns get the names that MySQL gives them, and exact numbers that are computed the digits that it shows."""
    shown = []
    for one in select.expressions:
        value, name = one.unalias(), one.alias
        if not name and not one.is_star and not isinstance(one, exp.Column | exp.Literal):
            name = one.sql("mysql")
        elif isinstance(one, exp.Column) and one.table and not one.is_star:
            name = one.name
        digits = kind_of(value, kinds)
        if isinstance(digits, int) and digits and not isinstance(value, exp.Column | exp.Literal):
            value = call("mysql_round", value, exp.Literal.number(digits))
        shown.append(exp.alias_(value, name, quoted=True) if name else value)
    select.set("expressions", shown)


def _having_without_groups(select: exp.Select) -> None:
    """HAVING without GROUP BY and without an aggregate is a further condition, which may use names of columns."""
    having = select.args.get("having")
    if having is None or select.args.get("group") is not None:
        return
    if any(one.find(exp.AggFunc) is not None for one in (having, *select.expressions)):
        return
    select.set("having", None)
    select.where(having.this, copy=False)


def _groups_as_they_appear(select: exp.Select, common: set[str]) -> None:
    """MySQL gathers groups in a temporary table: they come in the order of their first rows, where nothing asks for
    another order, and so do groups that an ORDER BY leaves level. SQLite sorts by the group.
    """
    group = select.args.get("group")
    if group is None or not group.expressions or _is_part_of_a_union(select):
        return
    tables = base_tables(select, common)
    first = [exp.Min(this=exp.column(ROW, table=table.alias_or_name)) for table in tables]
    if first:
        select.order_by(*first, append=True, copy=False)


def _is_part_of_a_union(select: exp.Select) -> bool:
    parent = select.parent
    while isinstance(parent, exp.Subquery):
        parent = parent.parent
    return isinstance(parent, exp.SetOperation)


def call(name: str, *given: exp.Expr) -> exp.Anonymous:
    """A call of a function by its name; the arguments are taken as they are."""
    return exp.Anonymous(this=name, expressions=list(given))
