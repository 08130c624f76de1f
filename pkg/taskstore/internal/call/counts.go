package call

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// Tasks are counted by status in ingest_task_count, and by user, knowledge base and status in ingest_task_owner. No change of a task
// writes to either: its call says what it moved, and is counted when its waking ends (waking.go). So the number of tasks is what is
// counted and what calls that wake say, read by one statement.

// Whose is who has a task: a user and a knowledge base, which is empty for a task without a document.
type Whose struct {
	User string `json:"user"`
	Base string `json:"base"`
}

func (o Whose) compare(p Whose) int {
	return cmp.Or(cmp.Compare(o.User, p.User), cmp.Compare(o.Base, p.Base))
}

// Has reports whether p is among those that o names; empty fields name any.
func (o Whose) Has(p Whose) bool {
	return (o.User == "" || o.User == p.User) && (o.Base == "" || o.Base == p.Base)
}

// Named is what the owners of a call say when a user, a knowledge base or both are among them.
func (o Whose) Named() (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	user, err := json.Marshal(o.User)
	if err != nil {
		return "", err
	}
	whole := string(text[1 : len(text)-1]) // "user":…,"base":…
	head := `"user":` + string(user)
	switch {
	case o.Base == "":
		return head + ",", nil
	case o.User == "":
		return whole[len(head):] + ",", nil
	}
	return whole + ",", nil
}

// Owned is an element of a call's owners.
type Owned struct {
	Whose
	N int64 `json:"n"`
}

// owners is what a call's row says of whose tasks it moved; nil where it changed no status.
func owners(log []Row) any {
	if log[0].From == log[0].To {
		return nil
	}
	n := map[Whose]int64{}
	for i := range log {
		n[log[i].Whose]++
	}
	out := make([]Owned, 0, len(n))
	for _, o := range slices.SortedFunc(maps.Keys(n), Whose.compare) {
		out = append(out, Owned{o, n[o]})
	}
	text, err := json.Marshal(out)
	if err != nil {
		panic(err) // of texts and numbers
	}
	return string(text)
}

// Kept is a row of ingest_task_owner but for its number.
type Kept struct {
	Whose
	Status taskstate.Status
}

// counts are numbers to add, by status and by owner.
type counts struct {
	all    map[taskstate.Status]int64
	owners map[Kept]int64
}

func newCounts() counts { return counts{map[taskstate.Status]int64{}, map[Kept]int64{}} }

// move adds what a call moved.
func (n counts) move(c Call) {
	n.all[c.to] += c.tasks
	n.all[c.from] -= c.tasks
	EachOwned(c.owners, func(o Owned) {
		n.owners[Kept{o.Whose, c.to}] += o.N
		n.owners[Kept{o.Whose, c.from}] -= o.N
	})
}

// EachOwned goes through the owners of a call. Those that cannot be read, of a damaged row, count nothing: fsck finds them (I41), and
// recovery goes on.
func EachOwned(text string, f func(Owned)) {
	var all []Owned
	if json.Unmarshal([]byte(text), &all) != nil {
		return
	}
	for _, o := range all {
		f(o)
	}
}

// count writes counts. Rows are written in the order of their keys.
func (s Store) count(ctx context.Context, tx taskstate.Tx, n counts) error {
	for _, status := range slices.Sorted(maps.Keys(n.all)) {
		if add := n.all[status]; status != "" && add != 0 {
			if err := (sqldb.Write{Part: s.Queries.Part("CountAdd", add, string(status)), Rows: 1}).Exec(ctx, tx); err != nil {
				return fmt.Errorf("count tasks: %w", err)
			}
		}
	}
	var rows [][]any
	for _, k := range slices.SortedFunc(maps.Keys(n.owners), func(a, b Kept) int {
		return cmp.Or(a.Whose.compare(b.Whose), cmp.Compare(a.Status, b.Status))
	}) {
		if add := n.owners[k]; k.Status != "" && add != 0 {
			rows = append(rows, []any{k.User, k.Base, string(k.Status), add})
		}
	}
	for part := range slices.Chunk(rows, statement.MaxRows) {
		if _, err := tx.ExecContext(ctx, s.Queries.Rows("CountOwner", len(part)), slices.Concat(part...)...); err != nil {
			return fmt.Errorf("count tasks of users: %w", err)
		}
	}
	return nil
}
