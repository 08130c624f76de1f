// Package migrations holds the database schema as numbered SQL files, one folder per dialect, numbered alike.
//
// A file NNN_name.up.sql is never edited after a release, but for quotes of names (Checksum); NNN_name.down.sql takes its objects away again.
// Statements end with a semicolon at the end of a line. On MySQL each commits by itself,
// so each must be able to run again after a run that broke off. There @nopad stands for the server's binary collation that
// does not pad, utf8mb4_nopad_bin on MariaDB and utf8mb4_0900_bin on MySQL 8: who runs the text puts it in.
package migrations

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strconv"
	"strings"
)

// schemaFile makes the runner's own table in each dialect; it is not a numbered migration.
const schemaFile = "schema_migrations.sql"

// files are mysql/…, postgres/… and sqlite/….
//
//go:embed mysql/*.sql postgres/*.sql sqlite/*.sql
var files embed.FS

// Migration is one numbered step of the schema.
type Migration struct {
	Version  int
	Name     string // without number and ending
	Up, Down string // SQL text
	Checksum string // sha256 of Up without the quotes of names, 64 hex characters
}

// Load returns the migrations of one dialect in the order of their numbers.
// Errors: an unknown dialect, a file name that is not NNN_name.up.sql or .down.sql, a number used twice, a missing half.
func Load(dialect string) ([]Migration, error) {
	names, err := fs.ReadDir(files, dialect)
	if err != nil {
		return nil, fmt.Errorf("migrations of %q: %w", dialect, err)
	}
	found := map[int]*Migration{}
	for _, entry := range names {
		if entry.Name() == schemaFile {
			continue
		}
		if err := add(found, dialect, entry.Name()); err != nil {
			return nil, err
		}
	}
	out := make([]Migration, 0, len(found))
	for _, m := range found {
		if m.Up == "" || m.Down == "" {
			return nil, fmt.Errorf("migration %s/%03d_%s: up or down is missing", dialect, m.Version, m.Name)
		}
		out = append(out, *m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Version < out[j].Version })
	return out, nil
}

// add reads one file into its migration.
func add(found map[int]*Migration, dialect, file string) error {
	number, rest, ok := strings.Cut(file, "_")
	version, err := strconv.Atoi(number)
	name, direction, dot := strings.Cut(rest, ".")
	if !ok || !dot || err != nil || len(number) != 3 || (direction != "up.sql" && direction != "down.sql") {
		return fmt.Errorf("migration %s/%s: want NNN_name.up.sql or NNN_name.down.sql", dialect, file)
	}
	text, err := fs.ReadFile(files, path.Join(dialect, file))
	if err != nil {
		return fmt.Errorf("migration %s/%s: %w", dialect, file, err)
	}
	m := found[version]
	if m == nil {
		m = &Migration{Version: version, Name: name}
		found[version] = m
	}
	if m.Name != name {
		return fmt.Errorf("migration %s/%s: number %03d is also %s", dialect, file, version, m.Name)
	}
	if direction == "down.sql" {
		m.Down = string(text)
		return nil
	}
	sum := sha256.Sum256(bytes.ReplaceAll(text, []byte("`"), nil)) // names that servers reserve were quoted after a release
	m.Up, m.Checksum = string(text), hex.EncodeToString(sum[:])
	return nil
}

// SchemaTable returns the statement that makes the runner's own table where it is missing.
func SchemaTable(dialect string) (string, error) {
	text, err := fs.ReadFile(files, path.Join(dialect, schemaFile))
	if err != nil {
		return "", fmt.Errorf("schema table of %q: %w", dialect, err)
	}
	return Statements(string(text))[0], nil
}

// Statements splits SQL text at semicolons that end a line; comment lines are dropped.
func Statements(text string) []string {
	var out []string
	var b strings.Builder
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "--") {
			continue
		}
		b.WriteString(line)
		if strings.HasSuffix(trimmed, ";") {
			out = append(out, strings.TrimSuffix(strings.TrimSpace(b.String()), ";"))
			b.Reset()
		}
	}
	if rest := strings.TrimSpace(b.String()); rest != "" {
		out = append(out, rest)
	}
	return out
}
