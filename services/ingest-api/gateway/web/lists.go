package web

import (
	"encoding/base64"
	"hash/crc32"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// List sends a page of a list; its cursors carry its name. read gets the rows after a cursor, nil at the start, and one more of them
// than are shown.
func List[R, V any](
	c *gin.Context, name string, read func(after *Cursor, most int) ([]R, error), view func(R) V, place func(R) Cursor,
) error {
	p := ParamsOf(c)
	limit, after := p.Page(name)
	if p.Err() != nil {
		return p.Err()
	}
	rows, err := read(after, limit+1)
	if err != nil {
		return err
	}
	return JSON(c, http.StatusOK, PageOf(name, rows, limit, view, place))
}

// PageOf cuts the one row that was asked for beyond the limit, and makes the cursor of the last row that stays.
func PageOf[R, V any](name string, rows []R, limit int, view func(R) V, place func(R) Cursor) wire.List[V] {
	out := Whole(rows[:min(len(rows), limit)], view)
	if len(rows) > limit {
		GoesOn(&out, name, place(rows[limit-1]))
	}
	return out
}

// GoesOn says where the list of that name has more.
func GoesOn[V any](page *wire.List[V], name string, place Cursor) {
	place.List = name
	page.NextCursor, page.HasMore = wire.NullText(place.Encode()), true
}

// Whole is a list that is one page: the registry, the groups and the members are read as a whole anyway.
func Whole[R, V any](rows []R, view func(R) V) wire.List[V] {
	return wire.List[V]{Items: Each(rows, view)}
}

// WholeOf is Whole with this view.
func WholeOf[R, V any](view func(R) V) func(rows []R) wire.List[V] {
	return func(rows []R) wire.List[V] { return Whole(rows, view) }
}

// Each renders every row.
func Each[R, V any](rows []R, view func(R) V) []V {
	out := make([]V, len(rows))
	for i, r := range rows {
		out[i] = view(r)
	}
	return out
}

const (
	cursorVersion = "1"
	maxCursorLen  = 512
	maxCursorID   = 128
)

// Cursor is the sort key of a list's last row. Its text is opaque to callers.
// It gives no access: scope and filters are judged anew on every page, so a forged one only starts elsewhere in the caller's own list.
// The checksum tells a damaged one from a good one.
type Cursor struct {
	List string // which list and order it belongs to
	At   int64  // microseconds, a row number or an index
	ID   string // of the row; empty where the number is enough
}

// Encode is the text of the cursor.
func (c Cursor) Encode() string {
	plain := strings.Join([]string{cursorVersion, c.List, strconv.FormatInt(c.At, 10), c.ID}, "|")
	return base64.RawURLEncoding.EncodeToString([]byte(plain + "|" + sumOf(plain)))
}

// DecodeCursor reads a text that encode made for the same list; anything else is BAD_CURSOR.
func DecodeCursor(text, list string) (Cursor, error) {
	bad := BadCursor()
	if len(text) > maxCursorLen || strings.ContainsAny(text, "\r\n") { // which the decoder passes over
		return Cursor{}, bad
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Cursor{}, bad
	}
	at := strings.LastIndexByte(string(raw), '|')
	if at < 0 || sumOf(string(raw[:at])) != string(raw[at+1:]) {
		return Cursor{}, bad
	}
	parts := strings.SplitN(string(raw[:at]), "|", 4)
	if len(parts) != 4 || parts[0] != cursorVersion || parts[1] != list || !HarmlessID(parts[3]) {
		return Cursor{}, bad
	}
	number, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || strconv.FormatInt(number, 10) != parts[2] {
		return Cursor{}, bad
	}
	return Cursor{List: list, At: number, ID: parts[3]}, nil
}

// BadCursor says that a cursor is not one that the list gave out.
func BadCursor() *Error { return &Error{Code: CodeBadCursor, Parameter: "cursor"} }

// TimeCursor is the place of a row in order of time.
func TimeCursor(at time.Time, id string) Cursor { return Cursor{At: at.UnixMicro(), ID: id} }

// Number is where a list in order of numbers goes on; start without a cursor.
func (c *Cursor) Number(start int64) int64 {
	if c == nil {
		return start
	}
	return c.At
}

// Key is the cursor as the application takes it; nil stays nil.
func (c *Cursor) Key() *taskstate.Cursor {
	if c == nil {
		return nil
	}
	return &taskstate.Cursor{At: time.UnixMicro(c.At).UTC(), ID: c.ID}
}

func sumOf(plain string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte("millweir cursor "+plain))), 36)
}

var harmlessID = regexp.MustCompile(`^[0-9A-Za-z_:-]*$`)

// HarmlessID reports whether an id consists of what our ids are made of.
func HarmlessID(id string) bool { return len(id) <= maxCursorID && harmlessID.MatchString(id) }

// SortedAt is the time that a list in this order goes by.
func SortedAt(sort taskstate.Sort, created, updated time.Time) time.Time {
	if sort == taskstate.SortCreated || sort == taskstate.SortCreatedDesc {
		return created
	}
	return updated
}
