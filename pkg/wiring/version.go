package wiring

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// VersionFunc returns which server this is, and its version as the server tells it; empty: it does not.
type VersionFunc func(ctx context.Context) (product, version string, err error)

// oldest are the first versions that work, as they are known: MariaDB and MySQL need a collation that does not pad (contract §3), streams
// their commands (pkg/streammq), Chroma before 1.5.9 runs code of strangers, and Qdrant before 1.10 knows not all requests (their packages in
// pkg/ingest/vector). Of other servers none is known that does not work.
var oldest = map[string]string{"MariaDB": "10.6", "MySQL": "8.0.17", "Redis": "6.2", "Chroma": "1.5.9", "Qdrant": "1.10"}

// TooOld returns the first version of a server that works, if this one is older; empty: it is not, or nothing is known.
func TooOld(product, version string) (need string) {
	if need = oldest[product]; need != "" && version != "" && slices.Compare(numbers(version), numbers(need)) < 0 {
		return need
	}
	return ""
}

// numbers are those that a version begins with.
func numbers(version string) (out []int) {
	for _, part := range strings.FieldsFunc(version, func(r rune) bool { return r == '.' || r == '-' || r == ' ' || r == '+' || r == '~' }) {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

// CheckVersion returns an error when a server is known to be too old. One that cannot be asked, or by whom this user may not, is not.
func CheckVersion(ctx context.Context, ask VersionFunc) error {
	product, version, err := ask(ctx)
	if err != nil {
		return nil //nolint:nilerr // whether it can be used is another check's matter
	}
	if need := TooOld(product, version); need != "" {
		return fmt.Errorf("%s %s is too old: upgrade it to %s or later", product, version, need)
	}
	return nil
}
