
-- The minute of a change, in UTC.
-- name: Minute
DATE_FORMAT(r.created_at, '%Y-%m-%dT%H:%i')
