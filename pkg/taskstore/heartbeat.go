package taskstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Heartbeat implements taskstate.Store. It is one statement for up to 500 beats, a second one only when some are
// lost, and one for each only when a row is locked. It is not run inside a transaction of several statements, so a connection
// that dies is no riddle: it is repeated.
func (s *Store) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) ([]string, error) {
	sorted := slices.SortedFunc(slices.Values(beats), func(x, y taskstate.Beat) int { return strings.Compare(x.TaskID, y.TaskID) })
	var lost []string
	for chunk := range slices.Chunk(sorted, maxBatch) {
		err := s.withWorkers(ctx, func() error {
			gone, err := s.beat(ctx, boundedMicros(lease), chunk)
			lost = append(lost, gone...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return lost, nil
}

// beat renews one chunk and returns the ids whose claim is lost.
func (s *Store) beat(ctx context.Context, lease int64, beats []taskstate.Beat) ([]string, error) {
	batch := make([][]any, len(beats))
	for i, b := range beats {
		owner, err := s.workers.number(anyEpoch, b.Owner) // a beat of another timeline is lost whatever it says
		if err != nil {
			return nil, fmt.Errorf("heartbeat of task %s: %w", b.TaskID, err)
		}
		batch[i] = beatRow(b, owner, lease)
	}
	query := s.withRows("Heartbeat", beatColumns, batch)
	var lost []string
	locked := false
	work := func(ctx context.Context, tx taskstate.Tx) error {
		lost = nil
		res, err := tx.ExecContext(ctx, query.Text, query.Args...)
		if locked = err != nil && len(beats) > 1 && s.ClassOf(err) == sqldb.Retry; locked {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil || n == int64(len(beats)) {
			return err
		}
		lost, err = s.unheld(ctx, tx, beats, batch)
		return err
	}
	if err := s.Beat(ctx, work); err != nil {
		return nil, fmt.Errorf("heartbeat of %d tasks: %w", len(beats), err)
	}
	if locked {
		return s.beatApart(ctx, lease, beats)
	}
	return lost, nil
}

// beatApart renews each alone when a row is locked: a run's transaction that waits must cost no other run its lease.
func (s *Store) beatApart(ctx context.Context, lease int64, beats []taskstate.Beat) ([]string, error) {
	var (
		mu   sync.Mutex
		all  sync.WaitGroup
		lost []string
		errs []error
	)
	for i := range beats {
		all.Go(func() {
			gone, err := s.beat(ctx, lease, beats[i:i+1])
			mu.Lock()
			defer mu.Unlock()
			lost, errs = append(lost, gone...), append(errs, err)
		})
	}
	all.Wait()
	return lost, errors.Join(errs...)
}

// unheld returns which beats find no row.
func (s *Store) unheld(ctx context.Context, tx taskstate.Tx, beats []taskstate.Beat, batch [][]any) ([]string, error) {
	query := s.withRows("HeartbeatHeld", beatColumns, batch)
	ids, err := sqldb.Texts(ctx, tx, query.Text, query.Args...)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, b := range beats {
		if !slices.Contains(ids, b.TaskID) {
			lost = append(lost, b.TaskID)
		}
	}
	return lost, nil
}

// beatColumns are what the statements Heartbeat and HeartbeatHeld read of a beat; the lease is in microseconds.
var beatColumns = []string{"id", "status", "fence", "timeline", "owner", "renew", "lease", "stage", "percent", "processed", "total"}

// beatRow has a beat's values of beatColumns. The timeline is text, for not every JSON reader keeps 63 bits.
func beatRow(b taskstate.Beat, owner, lease int64) []any {
	row := []any{
		b.TaskID, string(b.Status), b.Token.Fence, strconv.FormatInt(b.Token.Epoch, 10), owner, sqldb.Flag(b.Renew), lease,
	}
	if p := b.Progress; p != nil {
		return append(row, string(cmp.Or(p.Stage, taskstate.StageNone)), p.Percent, p.Processed, p.Total)
	}
	return append(row, nil, nil, nil, nil) // progress stays
}

// withRows puts a batch, rows of the values of columns, into the statement of that name: one JSON array, or on MySQL a SELECT of
// constants for each row, the statement named …Row. args follow.
func (s *Store) withRows(name string, columns []string, batch [][]any, args ...any) sqldb.Part {
	if !s.mysql() {
		objects := make([]map[string]any, len(batch))
		for i, row := range batch {
			objects[i] = make(map[string]any, len(columns))
			for n, column := range columns {
				objects[i][column] = row[n]
			}
		}
		array, _ := json.Marshal(objects) // texts and numbers are always JSON
		return s.queries.Part(name, append([]any{string(array)}, args...)...)
	}
	rows := &pieces{}
	for i, r := range batch {
		if i > 0 {
			rows.sql(" UNION ALL ")
		}
		rows.sql(s.queries.Get(name+"Row"), r...)
	}
	return s.queries.Bind(name, sqldb.Parts{"rows": rows.part()}, args...)
}
