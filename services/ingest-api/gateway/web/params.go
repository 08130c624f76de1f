package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	defaultPage   = 50
	MaxPage       = 100
	MaxFilter     = 200  // characters of a text filter
	MaxQueryChars = 8000 // characters of a search
	AnyParam      = "*"  // in a route's list: probes and scrapers may add what they like
)

// KnownParams refuses query parameters that the route does not know, and repeated ones, by name.
func KnownParams(c *gin.Context, known []string) error {
	values, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return Errorf(CodeInvalidParameter, "the query string cannot be read")
	}
	if slices.Contains(known, AnyParam) {
		return nil
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return Errorf(CodeUnknownParameter, "unknown parameter %s; known here: %s", Shown(name), listOr(known, "none")).About(Cut(name, MaxFilter))
		}
		if len(values[name]) > 1 {
			return Errorf(CodeInvalidParameter, "parameter %s stands more than once", name).About(name)
		}
	}
	return nil
}

func listOr(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// Shown quotes a caller's text for a message: no control characters, not too long.
func Shown(text string) string { return strconv.QuoteToGraphic(Cut(text, 64)) }

// Cut keeps at most n characters, and valid ones only.
func Cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n]) + "…"
}

// Int is a whole number of the query within a range; def when it is not given.
func Int(c *gin.Context, name string, def, low, high int) (int, error) {
	text, given := c.GetQuery(name)
	if !given {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, Errorf(CodeInvalidParameter, "parameter %s is %s, allowed is a whole number from %d to %d", name, Shown(text), low, high).About(name)
	}
	return n, nil
}

// Bool is true or false; def when it is not given.
func Bool(c *gin.Context, name string, def bool) (bool, error) {
	text, given := c.GetQuery(name)
	if !given {
		return def, nil
	}
	v, ok := ParseBool(text)
	if !ok {
		return false, Errorf(CodeInvalidParameter, "parameter %s is %s, allowed are true and false", name, Shown(text)).About(name)
	}
	return v, nil
}

func ParseBool(text string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1", "yes", "on":
		return true, true
	case "false", "0", "no", "off", "":
		return false, true
	}
	return false, false
}

// Time is an RFC 3339 time; the zero time when it is not given.
func Time(c *gin.Context, name string) (time.Time, error) {
	text, given := c.GetQuery(name)
	if !given || text == "" {
		return time.Time{}, nil
	}
	// A "+" of an offset that was not escaped arrives as a space.
	t, err := time.Parse(time.RFC3339Nano, strings.Replace(text, " ", "+", 1))
	if err != nil || t.Year() < 1970 || t.Year() > 9998 {
		return time.Time{}, Errorf(CodeInvalidParameter, "parameter %s is %s, allowed is a time such as 2026-01-31T12:00:00Z", name, Shown(text)).About(name)
	}
	return t.UTC(), nil
}

// TimeFilters are the parameters of timesParam.
var TimeFilters = []string{"createdAfter", "createdBefore", "updatedAfter", "updatedBefore"}

// Times limits a list by when its rows were made and changed.
func Times(c *gin.Context) (t ingest.Times, err error) {
	for i, into := range []*time.Time{&t.CreatedAfter, &t.CreatedBefore, &t.UpdatedAfter, &t.UpdatedBefore} {
		if *into, err = Time(c, TimeFilters[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// Filters are those that lists of tasks, documents and bases share; S are their states.
type Filters[S ~string] struct {
	Statuses []S
	Stage    taskstate.Stage
	Sort     taskstate.Sort
	Text     string
	Times    ingest.Times
}

// ReadFilters reads the filters of a list.
func ReadFilters[S ~string](c *gin.Context, known []S, order taskstate.Sort) (f Filters[S], err error) {
	if f.Statuses, err = Enum(c, "status", known); err != nil {
		return f, err
	}
	if f.Stage, err = Word(c, "stage", stages()); err != nil {
		return f, err
	}
	if f.Sort, err = Sort(c, order); err != nil {
		return f, err
	}
	if f.Text, err = Text(c, "q"); err != nil {
		return f, err
	}
	f.Times, err = Times(c)
	return f, err
}

// Text is a filter's text.
func Text(c *gin.Context, name string) (string, error) {
	text := strings.TrimSpace(c.Query(name))
	if err := ingest.CheckText(name, text, MaxFilter); err != nil {
		return "", Errorf(CodeInvalidParameter, "%s", err).About(name)
	}
	return text, nil
}

// User is a user's id as it stands, or empty: a trimmed one would be somebody else's.
func User(c *gin.Context, name string) (string, error) {
	id := c.Query(name)
	if id == "" {
		return "", nil
	}
	if err := auth.CheckUserID(id); err != nil {
		return "", Errorf(CodeInvalidParameter, "parameter %s: %s", name, err).About(name)
	}
	return id, nil
}

// Enum is a comma-separated list of known words; empty when it is not given.
func Enum[T ~string](c *gin.Context, name string, known []T) ([]T, error) {
	text := c.Query(name)
	if text == "" {
		return nil, nil
	}
	var out []T
	for _, word := range strings.Split(text, ",") {
		v := T(strings.TrimSpace(word))
		if !slices.Contains(known, v) {
			return nil, Errorf(CodeInvalidParameter, "parameter %s has %s, allowed are %s", name, Shown(string(v)), Join(known)).About(name)
		}
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out, nil
}

func Join[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}

// Sort is a list's order.
func Sort(c *gin.Context, def taskstate.Sort) (taskstate.Sort, error) {
	known := []taskstate.Sort{taskstate.SortCreated, taskstate.SortCreatedDesc, taskstate.SortUpdated, taskstate.SortUpdatedDesc}
	s := taskstate.Sort(c.DefaultQuery("sort", string(def)))
	if !slices.Contains(known, s) {
		return "", Errorf(CodeInvalidParameter, "parameter sort is %s, allowed are %s", Shown(string(s)), Join(known)).About("sort")
	}
	return s, nil
}

// Page are a list's limit and the cursor to go on after; nil: the first page.
func Page(c *gin.Context, list string) (limit int, after *Cursor, err error) {
	if limit, err = Int(c, "limit", defaultPage, 1, MaxPage); err != nil {
		return 0, nil, err
	}
	text := c.Query("cursor")
	if text == "" {
		return limit, nil, nil
	}
	got, err := DecodeCursor(text, list)
	if err != nil {
		return 0, nil, err
	}
	return limit, &got, nil
}

// ReadJSON reads the request's JSON object into v: known fields only, nothing after it, at most maxJSONBytes.
// With optional an empty body leaves v as it is.
func ReadJSON(c *gin.Context, v any, optional bool) error {
	allowRead(c, readTimeout)
	defer allowRead(c, 0)
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, MaxJSONBytes))
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 && optional {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return Errorf(CodeUnsupportedMedia, "send the body as application/json")
	}
	if !utf8.Valid(body) {
		return Errorf(CodeBadJSON, "the body is not valid UTF-8")
	}
	if name, twice := KeyTwice(body); twice {
		return Errorf(CodeBadJSON, "field %s stands more than once; send it once", Shown(name)).About(Cut(name, MaxFilter))
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return jsonProblem(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Errorf(CodeBadJSON, "there is more after the JSON object")
	}
	return nil
}

// KeyTwice finds a key that stands twice in one object of a JSON text, in whatever case: the decoder would take the last one, and
// another reader of the same text the first. What is not JSON has none.
func KeyTwice(body []byte) (string, bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	type level struct {
		keys map[string]bool // nil: an array
		key  bool            // a key is next
	}
	var open []level
	value := func() { // a value has ended, or an object or array with it
		if n := len(open); n > 0 && open[n-1].keys != nil {
			open[n-1].key = true
		}
	}
	for {
		token, err := dec.Token()
		if err != nil {
			return "", false
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, level{keys: map[string]bool{}, key: true})
			case '[':
				open = append(open, level{})
			default:
				open = open[:len(open)-1]
				value()
			}
			continue
		case string:
			if n := len(open); n > 0 && open[n-1].key {
				name := strings.ToLower(t)
				if open[n-1].keys[name] {
					return t, true
				}
				open[n-1].keys[name], open[n-1].key = true, false
				continue
			}
		}
		value()
	}
}

// jsonProblem names the place of a JSON error.
func jsonProblem(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return Errorf(CodeBadJSON, "field %s is a %s, expected is %s", kind.Field, kind.Value, kind.Type).About(kind.Field)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return Errorf(CodeBadJSON, "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return Errorf(CodeBadJSON, "unknown field %s", Shown(strings.Trim(name, `"`))).About(Cut(strings.Trim(name, `"`), MaxFilter))
	}
	return &Error{Code: CodeBadJSON, Message: fmt.Sprintf("not a JSON object: %s", err), Cause: err}
}

// allowRead gives the body d from now on; 0 takes the deadline away.
func allowRead(c *gin.Context, d time.Duration) {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	_ = http.NewResponseController(c.Writer).SetReadDeadline(until)
}

// Word is one of the known words, or empty.
func Word[T ~string](c *gin.Context, name string, known []T) (T, error) {
	words, err := Enum(c, name, known)
	if err != nil || len(words) == 0 {
		return "", err
	}
	if len(words) > 1 {
		return "", Errorf(CodeInvalidParameter, "parameter %s takes one word", name).About(name)
	}
	return words[0], nil
}

// PathID is a UUID of the path in its usual form.
func PathID(c *gin.Context, name string) (string, bool) {
	id := strings.ToLower(c.Param(name))
	return id, IsUUID(id)
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// IsUUID reports whether text is a UUID in lower case with hyphens.
func IsUUID(text string) bool { return uuidForm.MatchString(text) }

// Network is what one caller can choose from at will: an IPv4 address, or a /64 of IPv6.
func Network(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return ip
	}
	return prefix.String()
}

// BaseFilter is the id of the base that a list is limited to; empty: none.
func BaseFilter(c *gin.Context, svc ingest.Service) (string, error) {
	idOrName, err := ingest.CleanBase("knowledgeBase", c.Query("knowledgeBase"))
	if err != nil || idOrName == "" {
		return "", err
	}
	b, err := svc.Base(c.Request.Context(), Caller(c), idOrName)
	return b.ID, err
}

func stages() []taskstate.Stage {
	return slices.Concat(
		[]taskstate.Stage{taskstate.StageNone}, ingest.Describe().Stages, []taskstate.Stage{taskstate.StageRun, taskstate.StageDone},
	)
}

// DocumentID is the path's id; what cannot be one answers as an unknown one.
func DocumentID(c *gin.Context) (string, error) {
	id, ok := PathID(c, "documentId")
	if !ok {
		return "", ingest.ErrDocumentNotFound
	}
	return id, nil
}
