package taskstore

import "time"

// Watch sets the test's watch: it sees every statement before it runs and after, and may fail it.
func (s *Store) Watch(f func(query string, done bool) error) { s.Database.Watch = f }

// LookAt sets how many tasks a search looks at for a page.
func (s *Store) LookAt(n int) { s.most = n }

// TrustLocks lets the time of the locking statement be now however long the locks took.
func (s *Store) TrustLocks() { s.fresh = time.Hour }
