
-- The minute of a change, in UTC.
-- name: Minute
REPLACE(SUBSTR(r.created_at, 1, 16), ' ', 'T')
