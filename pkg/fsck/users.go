package fsck

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/millweir/millweir/pkg/auth"
)

// owned are the tables whose rows belong to a user, with the statement that lists their users.
var owned = []struct{ table, query string }{
	{"api_key", "UsersOfKeys"}, {"ingest_task", "UsersOfTasks"}, {"knowledge_base", "UsersOfBases"},
	{"knowledge_document", "UsersOfDocuments"}, {"stored_file", "UsersOfFiles"}, {"upload_request", "UsersOfRequests"},
}

// judgeUsers is I30 for user ids: each keeps the rule, and none can be taken for another one.
func (c *checker) judgeUsers(ctx context.Context) error {
	tables := map[string][]string{} // by user id
	for _, o := range owned {
		err := c.each(ctx, c.q.Get(o.query), nil, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			tables[id] = append(tables[id], o.table)
			return err
		})
		if err != nil {
			return err
		}
	}
	like := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		like[plainID(id)] = append(like[plainID(id)], id)
	}
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		c.judged("I30")
		about := "user " + strings.ToValidUTF8(id, "\uFFFD")
		if err := auth.CheckUserID(id); err != nil {
			c.bad("I30", about, "rows of %s: %v (%q)", strings.Join(tables[id], ", "), err, id)
		}
		if alike := like[plainID(id)]; len(alike) > 1 && alike[0] != id {
			c.bad("I30", about, "rows of %s: the user ids %q and %q can be taken for one another", strings.Join(tables[id], ", "), alike[0], id)
		}
	}
	return nil
}

// plainID is what is left of a user id without what nobody sees: ids that only differ so are easily taken for one another.
func plainID(id string) string {
	return norm.NFC.String(strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, id)))
}
