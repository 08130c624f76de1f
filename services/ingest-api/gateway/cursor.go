package gateway

import (
	"encoding/base64"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	cursorVersion = "1"
	maxCursorLen  = 512
	maxCursorID   = 128
)

// cursor is the sort key of a list's last row. Its text is opaque to callers.
// It gives no access: scope and filters are judged anew on every page, so a forged one only starts elsewhere in the caller's own list.
// The checksum tells a damaged one from a good one.
type cursor struct {
	list string // which list and order it belongs to
	at   int64  // microseconds, a row number or an index
	id   string // of the row; empty where the number is enough
}

// encode is the text of the cursor.
func (c cursor) encode() string {
	plain := strings.Join([]string{cursorVersion, c.list, strconv.FormatInt(c.at, 10), c.id}, "|")
	return base64.RawURLEncoding.EncodeToString([]byte(plain + "|" + sumOf(plain)))
}

// decodeCursor reads a text that encode made for the same list; anything else is BAD_CURSOR.
func decodeCursor(text, list string) (cursor, error) {
	bad := (&apiError{code: codeBadCursor}).about("cursor")
	if len(text) > maxCursorLen || strings.ContainsAny(text, "\r\n") { // which the decoder passes over
		return cursor{}, bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return cursor{}, bad
	}
	plain, sum, ok := cutLast(string(raw), "|")
	if !ok || sumOf(plain) != sum {
		return cursor{}, bad
	}
	parts := strings.SplitN(plain, "|", 4)
	if len(parts) != 4 || parts[0] != cursorVersion || parts[1] != list || !harmlessID(parts[3]) {
		return cursor{}, bad
	}
	at, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || strconv.FormatInt(at, 10) != parts[2] {
		return cursor{}, bad
	}
	return cursor{list: list, at: at, id: parts[3]}, nil
}

// timeCursor is the cursor of a list in order of time.
func timeCursor(list string, at time.Time, id string) cursor {
	return cursor{list: list, at: at.UnixMicro(), id: id}
}

// key is the cursor as the application takes it.
func (c cursor) key() *taskstate.Cursor {
	return &taskstate.Cursor{At: time.UnixMicro(c.at).UTC(), ID: c.id}
}

func sumOf(plain string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte("millweir cursor "+plain))), 36)
}

func cutLast(s, sep string) (before, after string, ok bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(sep):], true
}

// harmlessID reports whether an id consists of what our ids are made of.
func harmlessID(id string) bool {
	if len(id) > maxCursorID {
		return false
	}
	for i := range len(id) {
		b := id[i]
		if (b < '0' || b > '9') && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && b != '-' && b != '_' && b != ':' {
			return false
		}
	}
	return true
}

// sortedAt is the time that a list in this order goes by.
func sortedAt(sort taskstate.Sort, created, updated time.Time) time.Time {
	if sort == taskstate.SortCreated || sort == taskstate.SortCreatedDesc {
		return created
	}
	return updated
}
