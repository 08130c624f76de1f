package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	defaultPage   = 50
	MaxPage       = 100
	MaxFilter     = 200  // characters of a text filter
	MaxQueryChars = 8000 // characters of a search
	AnyParam      = "*"  // in a route's list: probes and scrapers may add what they like

	// MaxJSONBytes bounds a JSON request body.
	MaxJSONBytes = 1 << 20
	// readTimeout bounds the reading of a JSON body as a whole.
	readTimeout = 30 * time.Second
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
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, name) {
			all := cmp.Or(strings.Join(known, ", "), "none")
			return Errorf(CodeUnknownParameter, "unknown parameter %s; known here: %s", Shown(name), all).About(Cut(name, MaxFilter))
		}
		if len(values[name]) > 1 {
			return Errorf(CodeInvalidParameter, "parameter %s stands more than once", name).About(name)
		}
	}
	return nil
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

// Params reads the parameters of a query. Err says which is the first that is not valid; what is read after it is of no use.
type Params struct {
	c   *gin.Context
	err error
}

// ParamsOf reads the query of a request.
func ParamsOf(c *gin.Context) *Params { return &Params{c: c} }

// Err is the first problem. It is a call, so that it comes after the reads that stand before it in one return.
func (p *Params) Err() error { return p.err }

// Fail keeps the first problem.
func (p *Params) Fail(err error) { p.err = cmp.Or(p.err, err) }

// refuse says what a parameter would have to be.
func (p *Params) refuse(name, format string, args ...any) {
	p.Fail(Errorf(CodeInvalidParameter, format, args...).About(name))
}

// Int is a whole number within a range; def when it is not given.
func (p *Params) Int(name string, def, low, high int) int {
	text, given := p.c.GetQuery(name)
	if !given {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		p.refuse(name, "parameter %s is %s, allowed is a whole number from %d to %d", name, Shown(text), low, high)
	}
	return n
}

// Bool is true or false; false when it is not given.
func (p *Params) Bool(name string) bool {
	text := p.c.Query(name)
	v, ok := ParseBool(text)
	if !ok {
		p.refuse(name, "parameter %s is %s, allowed are true and false", name, Shown(text))
	}
	return v
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
func (p *Params) Time(name string) time.Time {
	text := p.c.Query(name)
	if text == "" {
		return time.Time{}
	}
	// A "+" of an offset that was not escaped arrives as a space.
	t, ok := ParseTime(strings.Replace(text, " ", "+", 1))
	if !ok {
		p.refuse(name, "parameter %s is %s, allowed is a time such as 2026-01-31T12:00:00Z", name, Shown(text))
	}
	return t
}

// ParseTime reads an RFC 3339 time of our days.
func ParseTime(text string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, text)
	return t.UTC(), err == nil && t.Year() >= 1970 && t.Year() <= 9998
}

// TimeFilters are the parameters of ingest.Times.
var TimeFilters = []string{"createdAfter", "createdBefore", "updatedAfter", "updatedBefore"}

// Filters are those that lists of tasks, documents and bases share; S are their states.
type Filters[S ~string] struct {
	Statuses []S
	Stage    taskstate.Stage
	Sort     taskstate.Sort
	Text     string
	Times    ingest.Times
}

// ReadFilters reads the filters of a list.
func ReadFilters[S ~string](c *gin.Context, known []S, order taskstate.Sort) (Filters[S], error) {
	p := ParamsOf(c)
	return Filters[S]{
		Statuses: Words(p, "status", known), Stage: Word(p, "stage", stages()), Sort: p.sort(order), Text: p.Text("q"),
		Times: ingest.Times{
			CreatedAfter: p.Time("createdAfter"), CreatedBefore: p.Time("createdBefore"),
			UpdatedAfter: p.Time("updatedAfter"), UpdatedBefore: p.Time("updatedBefore"),
		},
	}, p.Err()
}

// Text is a filter's text.
func (p *Params) Text(name string) string {
	text := strings.TrimSpace(p.c.Query(name))
	if err := ingest.CheckText(name, text, MaxFilter); err != nil {
		p.refuse(name, "%s", err)
	}
	return text
}

// User is a user's id as it stands, or empty: a trimmed one would be somebody else's.
func (p *Params) User(name string) string {
	id := p.c.Query(name)
	if id == "" {
		return ""
	}
	if err := auth.CheckUserID(id); err != nil {
		p.refuse(name, "parameter %s: %s", name, err)
	}
	return id
}

// Words is a comma-separated list of known words; empty when it is not given.
func Words[T ~string](p *Params, name string, known []T) (out []T) {
	text := p.c.Query(name)
	if text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		v := T(strings.TrimSpace(word))
		if !slices.Contains(known, v) {
			p.refuse(name, "parameter %s has %s, allowed are %s", name, Shown(string(v)), Join(known))
			return nil
		}
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Word is one of the known words, or empty.
func Word[T ~string](p *Params, name string, known []T) T {
	words := Words(p, name, known)
	if len(words) > 1 {
		p.refuse(name, "parameter %s takes one word", name)
	}
	return cmp.Or(words...)
}

func Join[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}

// sort is a list's order.
func (p *Params) sort(def taskstate.Sort) taskstate.Sort {
	known := []taskstate.Sort{taskstate.SortCreated, taskstate.SortCreatedDesc, taskstate.SortUpdated, taskstate.SortUpdatedDesc}
	s := taskstate.Sort(p.c.DefaultQuery("sort", string(def)))
	if !slices.Contains(known, s) {
		p.refuse("sort", "parameter sort is %s, allowed are %s", Shown(string(s)), Join(known))
	}
	return s
}

// Page are a list's limit and the cursor to go on after; nil: the first page.
func (p *Params) Page(list string) (limit int, after *Cursor) {
	limit = p.Int("limit", defaultPage, 1, MaxPage)
	text := p.c.Query("cursor")
	if text == "" {
		return limit, nil
	}
	got, err := DecodeCursor(text, list)
	if err != nil {
		p.Fail(err)
	}
	return limit, &got
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
	return DecodeJSON("the body", body, v)
}

// JSON reads a parameter that is a JSON object, as strictly as a body; v stays as it is when it is not given.
func (p *Params) JSON(name string, v any) {
	text := p.c.Query(name)
	if text == "" {
		return
	}
	var wrong *Error
	if errors.As(DecodeJSON("it", []byte(text), v), &wrong) {
		p.Fail(Errorf(wrong.Code, "parameter %s: %s", name, wrong.Message).About(name))
	}
}

// DecodeJSON reads a JSON object into v: known fields only, each once, nothing after it. what is its name in messages.
func DecodeJSON(what string, body []byte, v any) error {
	if !utf8.Valid(body) {
		return Errorf(CodeBadJSON, "%s is not valid UTF-8", what)
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
		where, want := "a value", kind.Type.String()
		if kind.Field != "" {
			where = "field " + kind.Field
		}
		if k := kind.Type.Kind(); k == reflect.Map || k == reflect.Struct {
			want = "an object"
		}
		return Errorf(CodeBadJSON, "%s is a %s, expected is %s", where, kind.Value, want).About(kind.Field)
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

// Within refuses a field's number that is not in its range.
func Within(field string, n, low, high int) error {
	if n < low || n > high {
		return Errorf(CodeInvalidField, "%s is %d, allowed is %d to %d", field, n, low, high).About(field)
	}
	return nil
}

// BaseName finds the id or name of a knowledge base in the path; what cannot be one is as unknown as any other.
func BaseName(c *gin.Context) (string, error) {
	name, err := ingest.CleanBase("base", c.Param("base"))
	if err != nil || name == "" {
		return "", ingest.ErrBaseNotFound
	}
	return name, nil
}

// ID finds the UUID of the path in its usual form; what cannot be one is as unknown as any other, without a look-up.
func ID(name string, unknown error) func(*gin.Context) (string, error) {
	return func(c *gin.Context) (string, error) {
		id := strings.ToLower(c.Param(name))
		if !IsUUID(id) {
			return "", unknown
		}
		return id, nil
	}
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
	prefix, _ := addr.Prefix(64) // every IPv6 address has one
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

// ReadFilter reads a filter expression of a parameter or field, and finds its knowledge base.
func ReadFilter(c *gin.Context, svc ingest.Service, name, text string, now time.Time) (filter.Filter, error) {
	f, err := filter.Parse(text, now)
	if err != nil {
		return f, Errorf(CodeInvalidField, "%s: %s", name, err).About(name)
	}
	if f.Query.UserID != "" {
		if err := auth.CheckUserID(f.Query.UserID); err != nil {
			return f, Errorf(CodeInvalidField, "%s: user: %s", name, err).About(name)
		}
	}
	if f.Base == "" {
		return f, nil
	}
	base, err := ingest.CleanBase(name, f.Base)
	if err != nil {
		return f, err
	}
	if err := WithinBase(c, svc, base); err != nil {
		return f, err
	}
	b, err := svc.Base(c.Request.Context(), Caller(c), base)
	f.Query.KnowledgeBase = b.ID
	return f, err
}

func stages() []taskstate.Stage {
	return slices.Concat(
		[]taskstate.Stage{taskstate.StageNone}, ingest.Describe().Stages, []taskstate.Stage{taskstate.StageRun, taskstate.StageDone},
	)
}

// DocumentID finds the document of the path.
var DocumentID = ID("documentId", ingest.ErrDocumentNotFound)
