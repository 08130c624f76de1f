package taskstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
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
	query, args, err := withRows(s, "Heartbeat", batch)
	if err != nil {
		return nil, err
	}
	var lost []string
	locked := false
	work := func(ctx context.Context, tx taskstate.Tx) error {
		lost = nil
		res, err := tx.ExecContext(ctx, query, args...)
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
	err = s.Beat(ctx, fmt.Sprintf("heartbeat of %d tasks", len(beats)), work)
	if err == nil && locked {
		return s.beatApart(ctx, lease, beats)
	}
	return lost, err
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
	query, args, err := withRows(s, "HeartbeatHeld", beats)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	held := make(map[string]bool, len(beats))
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		held[id] = true
	}
	var lost []string
	for _, b := range beats {
		if !held[b.ID] {
			lost = append(lost, b.ID)
		}
	}
	return lost, rows.Err()
}

// beatRowOf renders a beat.
func beatRowOf(b taskstate.Beat, lease int64) beatRow {
	r := beatRow{
		ID: b.TaskID, Status: string(b.Status), Fence: b.Token.Fence, Epoch: decimal(b.Token.Epoch),
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
