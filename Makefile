# One command checks everything; CI runs the same one.
.PHONY: check format lint types contracts test bench wheel site

check: lint types contracts test

format:
	ruff format .
	ruff check --fix .

lint:
	ruff format --check .
	ruff check .

types:
	mypy

contracts:
	lint-imports

test:
	pytest -n auto --dist loadgroup

bench:
	python -m tests.bench

wheel:
	python -m build

site:
	mkdocs build --strict
