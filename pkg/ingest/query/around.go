package query

import (
	"context"
	"database/sql"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
)

// piece is a segment of a context.
type piece struct {
	index int
	text  string
	bytes [2]int64 // its range in the document's text
}

// around reads the texts that stand around the hits of a page.
func (r *Reads) around(ctx context.Context, items [][]ingest.SearchHit) error {
	var wanted []*ingest.SearchHit
	var args []any
	for _, item := range items {
		for i := range item {
			if h := &item[i]; h.Around != ([2]int{}) {
				wanted = append(wanted, h)
				args = append(args, h.VersionID, h.Around[0], h.Around[1])
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	type row struct {
		version string
		piece
	}
	rows, err := sqldb.ReadAll(ctx, r.store, "read what stands around hits", r.q.Any("SearchAround", len(wanted)), args, func(rows *sql.Rows) (x row, err error) {
		err = rows.Scan(&x.version, &x.index, &x.text, &x.bytes[0], &x.bytes[1])
		return x, err
	})
	if err != nil {
		return err
	}
	pieces := map[string][]piece{}
	for _, x := range rows {
		version := strings.TrimSpace(x.version)
		pieces[version] = append(pieces[version], x.piece)
	}
	for _, h := range wanted {
		h.Context = joined(pieces[h.VersionID], h.Around)
	}
	return nil
}

// joined is the text of the pieces of a range, which come in order; empty when none of them is there any more.
func joined(pieces []piece, around [2]int) string {
	var text strings.Builder
	end := int64(-1)
	for _, p := range pieces {
		if p.index < around[0] || p.index > around[1] {
			continue
		}
		row := false
		if text.Len() > 0 && int64(len(p.text)) > p.bytes[1]-p.bytes[0] {
			_, p.text, row = strings.Cut(p.text, "\n") // the header row, which stands before the first rows
		}
		if text.Len() > 0 {
			text.WriteString(joint(text.String(), p.bytes[0]-end, row))
		}
		text.WriteString(p.text)
		end = p.bytes[1]
	}
	return text.String()
}

// joint is what stood between two pieces: white space, which neither of them has kept.
func joint(before string, gap int64, row bool) string {
	last, _ := utf8.DecodeLastRuneInString(before)
	switch {
	case gap <= 0:
		return ""
	case gap > 1:
		return "\n\n"
	case row || !strings.ContainsRune(".!?…。！？\"'”’»)", last):
		return "\n"
	}
	return " "
}
