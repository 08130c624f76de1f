package taskstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// uncompared are the texts that no statement compares: their tables are spared a copy.
var uncompared = []string{
	"audit_event.detail", "bulk_operation.filter", "bulk_operation.reason", "document_version.title", "failure_group.message", "failure_group.pattern", "failure_group.sample", "ingest_task_body.error_message", "ingest_task_body.last_error",
	"ingest_task_call.actor", "ingest_task_log.actor", "ingest_task_log.error_code", "ingest_task_log.message",
	"mirror_failure.reason", "outbox_event.last_error", "saved_view.filter", "telegram_reply.name",
}

// A new text column of MySQL is compared byte for byte, or stands in the list above.
func TestTextColumnsDoNotPad(t *testing.T) {
	t.Parallel()
	s := migrated(t, databases["mysql"](t))
	rows, err := s.DB().QueryContext(t.Context(), `SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns
		WHERE table_schema = DATABASE() AND data_type IN ('varchar', 'char') AND character_set_name = 'utf8mb4'
		AND table_name IN (SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE')
		AND collation_name NOT IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin') ORDER BY 1`)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	var got []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		got = append(got, name)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, uncompared, got)
}

// plant writes a task of a user, with a key, past the store's own checks: what some release or some hand has written.
func plant(ctx context.Context, s *taskstore.Store, user, key string) (string, error) {
	id := uuid.Must(uuid.NewV7()).String()
	_, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{{
			Task:  taskstate.Task{ID: id, UserID: "u", Type: "document", Channel: "http", MaxAttempts: 3, IdempotencyKey: id},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "u"},
		}}, nil
	})
	if err != nil {
		return "", err
	}
	return id, s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET user_id = ?, idempotency_key = ? WHERE id = ?", user, key, id)
		return err
	})
}

// What a release before wrote is kept, and told apart from then on.
func TestUpgradeToExactText(t *testing.T) {
	t.Parallel()
	s, ctx := migrated(t, databases["mysql"](t)), t.Context()
	id, err := plant(ctx, s, "anna", "key")
	require.NoError(t, err)
	require.NoError(t, s.MigrateDown(ctx, 5))
	require.ErrorIs(t, s.CheckSchema(ctx), sqldb.ErrSchemaBehind)
	anna, padded := taskstate.Scope{UserID: "anna", Role: taskstate.RoleUser}, taskstate.Scope{UserID: "anna ", Role: taskstate.RoleUser}
	var found string // in plain SQL: the program asks for columns that this schema has not
	require.NoError(t, s.DB().QueryRowContext(ctx, "SELECT id FROM ingest_task WHERE user_id = ?", padded.UserID).Scan(&found))
	require.Equal(t, id, found, "the hole that is mended")

	_, err = s.Migrate(ctx)
	require.NoError(t, err)
	_, err = s.Get(ctx, anna, id)
	require.NoError(t, err)
	_, err = s.Get(ctx, padded, id)
	require.ErrorIs(t, err, taskstate.ErrNotFound)
	other, err := plant(ctx, s, "anna ", "key")
	require.NoError(t, err, "each has a key of that name")
	require.NotEqual(t, id, other)
	require.Error(t, s.MigrateDown(ctx, 5), "the two keys would be one again")
	_, err = s.Migrate(ctx)
	require.NoError(t, err, "it goes on from where the way back broke off")
}

// alike draws a text, and another that looks or compares like it somewhere.
func alike(t *rapid.T) (string, string) {
	a := rapid.SampledFrom([]string{"anna", "Anna", "müller", "straße", "fi", "k", "i", "Å", "用户", "Ω", "user@example.org", "a b"}).Draw(t, "text")
	change := rapid.SampledFrom([]func(string) string{
		func(s string) string { return s + " " },
		func(s string) string { return s + "   " },
		func(s string) string { return " " + s },
		func(s string) string { return s + "\t" },
		func(s string) string { return s + "\u00a0" },
		func(s string) string { return s + "\u200b" },
		func(s string) string { return s[:1] + "\u200d" + s[1:] },
		func(s string) string { return s + "\u202e" },
		func(s string) string { return s + "\u0301" },
		strings.ToUpper, strings.ToLower, strings.ToTitle,
		func(s string) string { return strings.ReplaceAll(s, "ü", "u\u0308") },
		func(s string) string { return strings.ReplaceAll(s, "Å", "A\u030a") },
		func(s string) string { return strings.ReplaceAll(s, "Å", "\u212b") },
		func(s string) string { return strings.ReplaceAll(s, "ß", "ss") },
		func(s string) string { return strings.ReplaceAll(s, "fi", "\ufb01") },
		func(s string) string { return strings.ReplaceAll(s, "Ω", "\u2126") },
		func(s string) string { return strings.ReplaceAll(s, "a", "\u0430") }, // Cyrillic
		func(s string) string { return strings.ReplaceAll(s, "i", "\u0131") },
		func(s string) string { return strings.ReplaceAll(s, "k", "\u212a") },
		func(s string) string { // full width
			return strings.Map(func(r rune) rune {
				if r > ' ' && r < 0x7f {
					return r + 0xfee0
				}
				return r
			}, s)
		},
	}).Draw(t, "change")
	return a, change(a)
}

// On every database two users, and two keys of one user, are the same only when they are so byte for byte.
func TestTextIsComparedByteForByte(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			rapid.Check(t, func(t *rapid.T) {
				a, b := alike(t)
				if !utf8.ValidString(b) {
					t.Skip("cut inside a character")
				}
				run := rand.Text()
				userA, userB := run+a, run+b
				mine, err := plant(ctx, s, userA, "k")
				require.NoError(t, err)
				_, err = s.Get(ctx, taskstate.Scope{UserID: userB, Role: taskstate.RoleUser}, mine)
				if userA == userB {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, taskstate.ErrNotFound, "%+q reads the task of %+q", userB, userA)
				page, err := s.List(ctx, taskstate.Scope{UserID: userB, Role: taskstate.RoleUser}, taskstate.Query{Limit: 9})
				require.NoError(t, err)
				require.Empty(t, page.Tasks, "%+q lists the tasks of %+q", userB, userA)
				his, err := plant(ctx, s, userB, "k")
				require.NoError(t, err)
				require.NotEqual(t, mine, his)
				for _, key := range []string{a, b} {
					_, err = plant(ctx, s, userA, "key-"+key)
					require.NoError(t, err, fmt.Sprintf("the key %+q is taken for another", key))
				}
			})
		})
	}
}
