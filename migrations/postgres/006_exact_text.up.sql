-- Text is compared byte for byte here already (Postgres: equality under any collation of a database is that of the bytes).
-- The number is kept alike in all dialects; on MySQL this migration changes collations.

SELECT 1;
