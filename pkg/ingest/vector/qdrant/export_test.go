package qdrant

// Of package qdrant, for its tests.
var (
	PointID     = pointID
	RowsPerBody = rowsPerBody
)

// Waiting is how many calls wait for a request of a base.
func (s *Store) Waiting(base string) int { return s.collection(base).upserts.Waiting() }
