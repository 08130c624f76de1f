package taskstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Heartbeat implements taskstate.Store. It is one statement that asks about up to 500 beats, without a lock, and one that writes what
// they say. Neither is run inside a transaction, so a connection that dies is no riddle: it is repeated.
func (s *Store) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) (lost []string, err error) {
	sorted := slices.SortedFunc(slices.Values(beats), func(x, y taskstate.Beat) int { return strings.Compare(x.TaskID, y.TaskID) })
	rows := make([][]any, len(sorted))
	for i, b := range sorted {
		rows[i] = s.beatRow(b, boundedMicros(lease))
	}
	var said [][]any
	for at := 0; at < len(sorted); at += maxBatch {
		part := rows[at:min(at+maxBatch, len(rows))]
		held, err := s.stillHeld(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, row := range part {
			switch b := sorted[at+i]; {
			case !held[b.TaskID]:
				lost = append(lost, b.TaskID)
			case b.Renew || b.Progress != nil:
				said = append(said, row)
			}
		}
	}
	for part := range slices.Chunk(said, maxBatch) {
		query := s.withRows("Heartbeat", beatColumns, part)
		err := s.Beat(ctx, func(ctx context.Context, tx taskstate.Tx) error {
			_, err := tx.ExecContext(ctx, query.Text, query.Args...)
			return err
		})
		if err != nil {
			return lost, fmt.Errorf("write what %d heartbeats say: %w", len(part), err)
		}
	}
	return lost, nil
}

// stillHeld returns which beats find a row.
func (s *Store) stillHeld(ctx context.Context, rows [][]any) (map[string]bool, error) {
	query := s.withRows("HeartbeatHeld", beatColumns, rows)
	var ids []string
	err := s.Beat(ctx, func(ctx context.Context, tx taskstate.Tx) (err error) {
		ids, err = sqldb.Texts(ctx, tx, query.Text, query.Args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask about %d claims: %w", len(rows), err)
	}
	held := make(map[string]bool, len(ids))
	for _, id := range ids {
		held[id] = true
	}
	return held, nil
}

// beatColumns are what the statements Heartbeat and HeartbeatHeld read of a beat; the lease is in microseconds.
var beatColumns = []string{"id", "status", "fence", "timeline", "owner", "renew", "lease", "stage", "percent", "processed", "total"}

// beatRow has a beat's values of beatColumns. The timeline is text, for not every JSON reader keeps 63 bits. An owner of another
// timeline is lost whatever its number.
func (s *Store) beatRow(b taskstate.Beat, lease int64) []any {
	owner := int64(noWorker)
	if process, call, err := parseOwner(b.Owner); err == nil {
		if of, epoch := s.workers.get(process); of.no != noWorker && epoch == b.Token.Epoch {
			owner = of.no<<callBits | call
		}
	}
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
