"""Differential training programs: whole programs that nobody thought of, run in every way that must give the same values.

`generate` draws a training program from a grammar and gives its source text. The text imports its names from `on_torch` or from
`on_remat`, and is otherwise the same under PyTorch and under Remat. `forms` lists the ways in which a program is run: PyTorch, Remat
without a budget, with other levels of asynchrony, with and without foresight, compiled, and under budgets that are shares of its own
peak. `run` runs one program in one form, in a process of its own with limits of time and memory. `compare` says what disagrees.
`shrink` takes statements away for as long as a program still fails, and the result is kept in `cases`, which the tests replay.

`python -m differential --help` has the command. Nothing here is part of the package `remat`.

Why source text, and not calls drawn by a property-based library: a failing program is read, run and mailed as a file, and taking
statements away needs no knowledge of the grammar that made it.
"""
