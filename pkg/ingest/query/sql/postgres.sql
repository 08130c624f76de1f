
-- The minute of a change, in UTC.
-- name: Minute
to_char(r.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI')
