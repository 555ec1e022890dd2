-- Moving an installation to another store (transfer.py): where this one went, and where it is being filled from, each a JSON
-- object or NULL, in the home database. Nobody serves a store that has either.

ALTER TABLE identity ADD COLUMN moved_to text;
ALTER TABLE identity ADD COLUMN arriving_from text;
