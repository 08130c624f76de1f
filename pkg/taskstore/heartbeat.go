package taskstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Heartbeat implements taskstate.Store. It is one statement for up to 500 beats, a second one only when some are
// lost, and one for each only when a row is locked. It is not run inside a transaction of several statements, so a connection that dies is no riddle: it is repeated.
func (s *Store) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) ([]string, error) {
	sorted := append([]taskstate.Beat(nil), beats...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].TaskID < sorted[j].TaskID })
	var lost []string
	for chunk := range slices.Chunk(sorted, maxBatch) {
		gone, err := s.beat(ctx, boundedMicros(lease), chunk)
		if err != nil {
			return nil, err
		}
		lost = append(lost, gone...)
	}
	return lost, nil
}

// beat renews one chunk and returns the ids whose claim is lost.
func (s *Store) beat(ctx context.Context, lease int64, beats []taskstate.Beat) ([]string, error) {
	batch := make([]beatRow, len(beats))
	for i, b := range beats {
		batch[i] = beatRowOf(b, lease)
	}
	query, err := withRows(s, "Heartbeat", batch)
	if err != nil {
		return nil, err
	}
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
		lost, err = s.unheld(ctx, tx, batch)
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

// unheld answers which beats find no row.
func (s *Store) unheld(ctx context.Context, tx taskstate.Tx, beats []beatRow) ([]string, error) {
	query, err := withRows(s, "HeartbeatHeld", beats)
	if err != nil {
		return nil, err
	}
	ids, err := sqldb.Texts(ctx, tx, query.Text, query.Args...)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, b := range beats {
		if !slices.Contains(ids, b.ID) {
			lost = append(lost, b.ID)
		}
	}
	return lost, nil
}

// beatRowOf renders a beat.
func beatRowOf(b taskstate.Beat, lease int64) beatRow {
	r := beatRow{
		ID: b.TaskID, Status: string(b.Status), Fence: b.Token.Fence, Epoch: strconv.FormatInt(b.Token.Epoch, 10),
		Owner: b.Owner, Lease: lease,
	}
	if b.Renew {
		r.Renew = 1
	}
	if p := b.Progress; p != nil {
		stage := string(p.Stage)
		if stage == "" {
			stage = string(taskstate.StageNone)
		}
		percent, processed, total := p.Percent, p.Processed, p.Total
		r.Stage, r.Percent, r.Processed, r.Total = &stage, &percent, &processed, &total
	}
	return r
}

// beatRow is one beat as the statements Heartbeat and HeartbeatHeld read it.
type beatRow struct {
	ID        string  `json:"id"`
	Status    string  `json:"status"`
	Fence     int64   `json:"fence"`
	Epoch     string  `json:"timeline"` // text: not every JSON reader keeps 63 bits
	Owner     string  `json:"owner"`
	Renew     int     `json:"renew"`
	Lease     int64   `json:"lease"` // microseconds
	Stage     *string `json:"stage"` // null: progress stays
	Percent   *int    `json:"percent"`
	Processed *int    `json:"processed"`
	Total     *int    `json:"total"`
}

func (r beatRow) values() []any {
	return []any{r.ID, r.Status, r.Fence, r.Epoch, r.Owner, r.Renew, r.Lease, r.Stage, r.Percent, r.Processed, r.Total}
}

// withRows puts a batch into the statement of that name: one JSON array, or on MySQL a SELECT of constants for each row, the
// statement named …Row. args follow.
func withRows[T interface{ values() []any }](s *Store, name string, batch []T, args ...any) (sqldb.Part, error) {
	if !s.mysql() {
		array, err := json.Marshal(batch)
		return s.queries.Part(name, append([]any{string(array)}, args...)...), err
	}
	rows := &byID{}
	for i, r := range batch {
		if i > 0 {
			rows.sql(" UNION ALL ")
		}
		rows.sql(s.queries.Get(name+"Row"), r.values()...)
	}
	return s.queries.Bind(name, sqldb.Parts{"rows": rows.part()}, args...), nil
}
