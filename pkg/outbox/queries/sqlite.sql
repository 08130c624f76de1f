-- name: After
mw_add(@now, ?)
