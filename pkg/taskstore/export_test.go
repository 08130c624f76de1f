package taskstore

import (
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Watch sets the test's watch: it sees every statement before it runs and after, and may fail it.
func (s *Store) Watch(f func(query string, done bool) error) { s.Database.Watch = f }

// TrustLocks lets the time of the locking statement be now however long the locks took.
func (s *Store) TrustLocks() { s.fresh = time.Hour }

// ListQuery is the statement of a list with its arguments.
func (s *Store) ListQuery(scope taskstate.Scope, q taskstate.Query) (string, []any, error) {
	p, err := s.listStatement(scope, q)
	return p.Text, p.Args, err
}
