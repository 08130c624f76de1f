package catalog

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Live documents and their segments are counted by knowledge base and status (design D28). Who changes documents adds rows to
// document_count_change, in the same transaction; the sweeper joins them into document_count. The numbers are the sums over both.

// counted is what rows of counts are about.
type counted struct {
	base   string
	status ingest.DocumentStatus
}

func (c counted) compare(o counted) int {
	return cmp.Or(cmp.Compare(c.base, o.base), cmp.Compare(c.status, o.status))
}

// number is documents and their segments.
type number struct{ documents, segments int64 }

// Counts are what a transaction adds to the numbers of documents.
type Counts map[counted]number

func (c Counts) add(base string, status ingest.DocumentStatus, documents, segments int) {
	c.sum(counted{base, status}, number{int64(documents), int64(segments)})
}

func (c Counts) sum(at counted, n number) {
	c[at] = number{c[at].documents + n.documents, c[at].segments + n.segments}
}

// Made counts a new document.
func (c Counts) Made(d DocumentRow) { c.add(d.BaseID, d.Status, 1, d.Segments) }

// Changed counts a document that has another status or another number of segments than it had.
func (c Counts) Changed(base string, from ingest.DocumentStatus, had int, to ingest.DocumentStatus, has int) {
	c.add(base, from, -1, -had)
	c.add(base, to, 1, has)
}

// Gone counts a live document that is deleted.
func (c Counts) Gone(d LockedDocument) { c.add(d.Base, d.Status, -1, -d.Segments) }

// params are the rows that say something, in the order of their keys.
func (c Counts) params() (out []any) {
	for _, at := range slices.SortedFunc(maps.Keys(c), counted.compare) {
		if n := c[at]; n != (number{}) {
			out = append(out, at.base, string(at.status), n.documents, n.segments)
		}
	}
	return out
}

// countColumns is how many columns a row of params has.
const countColumns = 4

// Count writes down what the transaction tx changes.
func (a *Catalog) Count(ctx context.Context, tx taskstate.Tx, c Counts) error {
	return a.putCounts(ctx, tx, "CountsChange", c)
}

func (a *Catalog) putCounts(ctx context.Context, tx taskstate.Tx, statement string, c Counts) error {
	for some := range slices.Chunk(c.params(), PageSize*countColumns) {
		if err := (sqldb.Write{Part: sqldb.Part{Text: a.q.Rows(statement, len(some)/countColumns), Args: some}}).Exec(ctx, tx); err != nil {
			return fmt.Errorf("count documents: %w", err)
		}
	}
	return nil
}

// JoinCounts adds up to limit rows of document_count_change to document_count and returns how many it took. Several processes may join
// at once: each takes rows that no other has, and writes to the sums in the order of their keys. A sum that is 0 stays as long as its
// base does.
func (a *Catalog) JoinCounts(ctx context.Context, limit int) (taken int, err error) {
	err = a.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		c := Counts{}
		var rows []any
		err := sqldb.Each(ctx, tx, func(r *sql.Rows) error {
			var no int64
			var at counted
			var n number
			err := r.Scan(&no, &at.base, &at.status, &n.documents, &n.segments)
			rows = append(rows, no)
			c.sum(at, n)
			return err
		}, a.q.Get("CountsChanged"), limit)
		if taken = len(rows); err != nil || taken == 0 {
			return err
		}
		if err := a.putCounts(ctx, tx, "CountsAdd", c); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, a.q.List("CountsJoined", len(rows)), rows...)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("join counts of documents: %w", err)
	}
	return taken, nil
}
