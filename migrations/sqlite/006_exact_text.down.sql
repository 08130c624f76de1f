-- Text is compared byte for byte here already (SQLite: BINARY, the collation of every column, compares bytes).
-- The number is kept alike in all dialects; on MySQL this migration changes collations.

SELECT 1;
