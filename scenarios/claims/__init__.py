"""The article's claims as small scenarios; ``docs/claims.md`` shows what each gives."""
