package taskstore

import "database/sql"

// Watch sets the test's watch: it sees every statement before it runs and after, and may fail it.
func (s *Store) Watch(f func(query string, done bool) error) { s.watch = f }

// TxPool is the pool that transactions run on.
func (s *Store) TxPool() *sql.DB { return s.backend.Tx }
