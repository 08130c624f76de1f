-- name: After
(@now + INTERVAL ? MICROSECOND)
