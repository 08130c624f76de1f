package fsck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/telemetry"
)

// judgeText is I36 for one text of the database.
func (c *checker) judgeText(where, text string) {
	if text == "" {
		return
	}
	c.judged("I36")
	if what := c.secret(text); what != "" {
		c.bad("I36", where, "it holds %s", what)
	}
}

// scanLogs is I36 for log files, line by line.
func (c *checker) scanLogs(context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(c.e.Logs)) {
		lines := bufio.NewReaderSize(c.e.Logs[name], 1<<16)
		for n := 1; ; n++ {
			line, err := lines.ReadString('\n')
			c.judged("I36")
			if what := c.secret(line); what != "" {
				c.bad("I36", name, "line %d holds %s", n, what)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
		}
	}
	return nil
}

// secret says what kind of secret stands in a text, without repeating it.
func (c *checker) secret(text string) string {
	for i, canary := range c.o.Canaries {
		if canary != "" && strings.Contains(text, canary) {
			return fmt.Sprintf("planted secret %d", i+1)
		}
	}
	text = strings.ReplaceAll(text, `"`+telemetry.Hidden+`"`, telemetry.Hidden) // hidden already
	if hidden := telemetry.Redact(text); hidden != text {
		at := 0
		for at < len(text) && at < len(hidden) && text[at] == hidden[at] {
			at++
		}
		return fmt.Sprintf("something that looks like a secret, after %q", text[max(0, at-24):at])
	}
	return ""
}

// owned are the tables whose rows belong to a user, with the statement that lists their users.
var owned = []struct{ table, query string }{
	{"api_key", "UsersOfKeys"}, {"ingest_task", "UsersOfTasks"}, {"knowledge_base", "UsersOfBases"},
	{"knowledge_document", "UsersOfDocuments"}, {"stored_file", "UsersOfFiles"}, {"upload_request", "UsersOfRequests"},
	{"document_deletion", "UsersOfDeletions"},
}

// judgeUsers is I30 for user ids: each keeps the rule, and none can be taken for another one.
func (c *checker) judgeUsers(ctx context.Context) error {
	tables := map[string][]string{} // by user id
	for _, o := range owned {
		ids, err := sqldb.Collect(ctx, c.db, sqldb.Column[string], c.q.Get(o.query))
		if err != nil {
			return err
		}
		for _, id := range ids {
			tables[id] = append(tables[id], o.table)
		}
	}
	first := map[string]string{} // of the ids that look alike
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		c.judged("I30")
		about := "user " + strings.ToValidUTF8(id, "\uFFFD")
		if err := auth.CheckUserID(id); err != nil {
			c.bad("I30", about, "rows of %s: %v (%q)", strings.Join(tables[id], ", "), err, id)
		}
		if alike, known := first[plainID(id)]; known {
			c.bad("I30", about, "rows of %s: the user ids %q and %q can be taken for one another", strings.Join(tables[id], ", "), alike, id)
		} else {
			first[plainID(id)] = id
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
