"""The claims of the article, each asserted from theory; ``page`` writes docs/claims.md."""
