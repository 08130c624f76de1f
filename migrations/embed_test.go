package migrations

import (
	"regexp"
	"strings"
	"testing"
)

func TestDialectsAreNumberedAlike(t *testing.T) {
	t.Parallel()
	var want []Migration
	dialects := []string{"mysql", "postgres", "sqlite"}
	for i, dialect := range dialects {
		got, err := Load(dialect)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || got[0].Version != 1 {
			t.Fatalf("%s: got %d migrations that do not begin at 1", dialect, len(got))
		}
		if i == 0 {
			want = got
			continue
		}
		if len(got) != len(want) {
			t.Fatalf("%s has %d migrations, %s has %d", dialect, len(got), dialects[0], len(want))
		}
		for n := range got {
			if got[n].Version != want[n].Version || got[n].Name != want[n].Name {
				t.Errorf("%s: %03d_%s beside %03d_%s", dialect, got[n].Version, got[n].Name, want[n].Version, want[n].Name)
			}
			if len(got[n].Checksum) != 64 || len(Statements(got[n].Up)) == 0 || len(Statements(got[n].Down)) == 0 {
				t.Errorf("%s: %03d_%s is empty one way", dialect, got[n].Version, got[n].Name)
			}
		}
	}
}

// A name in this file was quoted after it had been applied, and databases know the sum that it had before.
func TestQuotesOfNamesChangeNoChecksum(t *testing.T) {
	t.Parallel()
	got, err := Load("mysql")
	if err != nil {
		t.Fatal(err)
	}
	const applied = "452c3b53028f7c8ce52e2ec9ac3455d0ea9d063ff6600107b60b9437adf950dd"
	if !strings.Contains(got[1].Up, "`stored`") || got[1].Checksum != applied {
		t.Errorf("%s has the sum %s, want %s", got[1].Name, got[1].Checksum, applied)
	}
}

func TestUnknownDialect(t *testing.T) {
	t.Parallel()
	if _, err := Load("oracle"); err == nil || !strings.Contains(err.Error(), "oracle") {
		t.Errorf("got %v", err)
	}
	if _, err := SchemaTable("oracle"); err == nil {
		t.Error("no error")
	}
}

func TestBadFileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tasks.up.sql", "1_tasks.up.sql", "001_tasks.sql", "001_tasks.sideways.sql", "0x1_a.up.sql"} {
		if err := add(map[int]*Migration{}, "mysql", name); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if err := add(map[int]*Migration{1: {Version: 1, Name: "other"}}, "mysql", "001_tasks.up.sql"); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("a number used twice: got %v", err)
	}
}

func TestStatements(t *testing.T) {
	t.Parallel()
	got := Statements("-- a; comment\nCREATE TABLE a (\n  b INT -- ; inside\n);\n\nDROP TABLE a;\nSELECT 1")
	want := []string{"CREATE TABLE a (\n  b INT -- ; inside\n)", "DROP TABLE a", "SELECT 1"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

// MySQL's DDL commits by itself: a migration that broke off in the middle is run again from its first statement.
func TestMySQLStatementsCanRunTwice(t *testing.T) {
	t.Parallel()
	all, err := Load("mysql")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		emptied := "" // the table that the statement before emptied
		for _, s := range append(Statements(m.Up), Statements(m.Down)...) {
			first, _, _ := strings.Cut(s, "\n")
			verb := strings.Fields(first)[0]
			switch {
			case verb == "CREATE" && (strings.HasPrefix(first, "CREATE TABLE IF NOT EXISTS ") || strings.HasPrefix(first, "CREATE OR REPLACE ")):
			case verb == "DROP" && (strings.HasPrefix(first, "DROP TABLE IF EXISTS ") || strings.HasPrefix(first, "DROP VIEW IF EXISTS ")):
			case verb == "TRUNCATE":
			case verb == "INSERT" && emptied != "" && strings.HasPrefix(first, "INSERT INTO "+emptied+" "):
			case verb == "INSERT" && strings.HasPrefix(first, "INSERT IGNORE "):
			case verb == "UPDATE" && setsAtOnce.MatchString(s):
			case verb == "ALTER" && onlyModifies(s): // a column that is so already stays as it is
			case verb == "SET" || verb == "PREPARE" || verb == "EXECUTE" || verb == "DEALLOCATE": // looks first
			default:
				t.Errorf("%03d_%s: %q fails when it is run again after a crash", m.Version, m.Name, first)
			}
			emptied, _ = strings.CutPrefix(first, "TRUNCATE ")
			if verb != "TRUNCATE" {
				emptied = ""
			}
		}
	}
}

// setsAtOnce is an UPDATE of one column to a constant, or to the column of another table: once more it sets the same.
var setsAtOnce = regexp.MustCompile(`\bSET (c\.)?wake_at = (w\.wake_at|'9999-12-31 00:00:00')|\bSET no = 0\b|\bSET w\.lease_until = h\.lease_until`)

// onlyModifies reports whether an ALTER TABLE only says what columns are to be.
func onlyModifies(statement string) bool {
	for i, line := range strings.Split(statement, "\n") {
		line = strings.TrimSpace(line)
		if i == 0 && !strings.Contains(line, " DEFAULT CHARACTER SET ") || i > 0 && !strings.HasPrefix(line, "MODIFY ") {
			return false
		}
	}
	return true
}
