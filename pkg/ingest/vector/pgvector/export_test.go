package pgvector

import "time"

// Of package pgvector, for its tests.
var (
	IsRetryable = isRetryable
	Failure     = failure
	TableName   = tableName
)

// SetTimeout changes the longest time of a statement, on our side of it.
func (s *Store) SetTimeout(d time.Duration) { s.cfg.Timeout = d }
