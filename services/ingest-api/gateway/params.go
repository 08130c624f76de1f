package gateway

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
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	defaultPage   = 50
	maxPage       = 100
	maxFilter     = 200  // characters of a text filter
	maxQueryChars = 8000 // characters of a search
	maxBaseName   = 128  // characters of a knowledge base's name
	anyParam      = "*"  // in a route's list: probes and scrapers may add what they like
)

// knownParams refuses query parameters that the route does not know, and repeated ones, by name.
func knownParams(c *gin.Context, known []string) error {
	values, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return problemf(codeInvalidParameter, "the query string cannot be read")
	}
	if slices.Contains(known, anyParam) {
		return nil
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return problemf(codeUnknownParameter, "unknown parameter %s; known here: %s", shown(name), listOr(known, "none")).about(cut(name, maxFilter))
		}
		if len(values[name]) > 1 {
			return problemf(codeInvalidParameter, "parameter %s stands more than once", name).about(name)
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

// shown quotes a caller's text for a message: no control characters, not too long.
func shown(text string) string { return strconv.QuoteToGraphic(cut(text, 64)) }

// cut keeps at most n characters, and valid ones only.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n]) + "…"
}

// intParam is a whole number of the query within a range; def when it is not given.
func intParam(c *gin.Context, name string, def, low, high int) (int, error) {
	text, given := c.GetQuery(name)
	if !given {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, problemf(codeInvalidParameter, "parameter %s is %s, allowed is a whole number from %d to %d", name, shown(text), low, high).about(name)
	}
	return n, nil
}

// boolParam is true or false; def when it is not given.
func boolParam(c *gin.Context, name string, def bool) (bool, error) {
	text, given := c.GetQuery(name)
	if !given {
		return def, nil
	}
	v, ok := parseBool(text)
	if !ok {
		return false, problemf(codeInvalidParameter, "parameter %s is %s, allowed are true and false", name, shown(text)).about(name)
	}
	return v, nil
}

func parseBool(text string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1", "yes", "on":
		return true, true
	case "false", "0", "no", "off", "":
		return false, true
	}
	return false, false
}

// timeParam is an RFC 3339 time; the zero time when it is not given.
func timeParam(c *gin.Context, name string) (time.Time, error) {
	text, given := c.GetQuery(name)
	if !given || text == "" {
		return time.Time{}, nil
	}
	// A "+" of an offset that was not escaped arrives as a space.
	t, err := time.Parse(time.RFC3339Nano, strings.Replace(text, " ", "+", 1))
	if err != nil || t.Year() < 1970 || t.Year() > 9998 {
		return time.Time{}, problemf(codeInvalidParameter, "parameter %s is %s, allowed is a time such as 2026-01-31T12:00:00Z", name, shown(text)).about(name)
	}
	return t.UTC(), nil
}

// timeFilters are the parameters of timesParam.
var timeFilters = []string{"createdAfter", "createdBefore", "updatedAfter", "updatedBefore"}

// timesParam limits a list by when its rows were made and changed.
func timesParam(c *gin.Context) (t ingest.Times, err error) {
	for i, into := range []*time.Time{&t.CreatedAfter, &t.CreatedBefore, &t.UpdatedAfter, &t.UpdatedBefore} {
		if *into, err = timeParam(c, timeFilters[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// textParam is a filter's text.
func textParam(c *gin.Context, name string) (string, error) {
	text := strings.TrimSpace(c.Query(name))
	if err := checkText(name, text, maxFilter, codeInvalidParameter, codeInvalidParameter); err != nil {
		return "", err
	}
	return text, nil
}

// userParam is a user's id as it stands, or empty: a trimmed one would be somebody else's.
func userParam(c *gin.Context, name string) (string, error) {
	id := c.Query(name)
	if id == "" {
		return "", nil
	}
	if err := auth.CheckUserID(id); err != nil {
		return "", problemf(codeInvalidParameter, "parameter %s: %s", name, err).about(name)
	}
	return id, nil
}

// enumParam is a comma-separated list of known words; empty when it is not given.
func enumParam[T ~string](c *gin.Context, name string, known []T) ([]T, error) {
	text := c.Query(name)
	if text == "" {
		return nil, nil
	}
	var out []T
	for _, word := range strings.Split(text, ",") {
		v := T(strings.TrimSpace(word))
		if !slices.Contains(known, v) {
			return nil, problemf(codeInvalidParameter, "parameter %s has %s, allowed are %s", name, shown(string(v)), join(known)).about(name)
		}
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out, nil
}

func join[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}

// sortParam is a list's order.
func sortParam(c *gin.Context, def taskstate.Sort) (taskstate.Sort, error) {
	known := []taskstate.Sort{taskstate.SortCreated, taskstate.SortCreatedDesc, taskstate.SortUpdated, taskstate.SortUpdatedDesc}
	s := taskstate.Sort(c.DefaultQuery("sort", string(def)))
	if !slices.Contains(known, s) {
		return "", problemf(codeInvalidParameter, "parameter sort is %s, allowed are %s", shown(string(s)), join(known)).about("sort")
	}
	return s, nil
}

// pageParams are a list's limit and the cursor to go on after; nil: the first page.
func pageParams(c *gin.Context, list string) (limit int, after *cursor, err error) {
	if limit, err = intParam(c, "limit", defaultPage, 1, maxPage); err != nil {
		return 0, nil, err
	}
	text := c.Query("cursor")
	if text == "" {
		return limit, nil, nil
	}
	got, err := decodeCursor(text, list)
	if err != nil {
		return 0, nil, err
	}
	return limit, &got, nil
}

// checkText refuses text that is too long, not UTF-8 or has control characters (line ends and tabs apart).
func checkText(name, text string, maxChars int, badCode, longCode string) error {
	if !utf8.ValidString(text) {
		return problemf(badCode, "%s is not valid UTF-8", name).about(name)
	}
	if n := utf8.RuneCountInString(text); n > maxChars {
		return problemf(longCode, "%s has %d characters, allowed are %d", name, n, maxChars).about(name)
	}
	for _, r := range text {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return problemf(badCode, "%s has the control character %U", name, r).about(name)
		}
	}
	return nil
}

// checkLine is checkText for a field of one line.
func checkLine(name, text string, maxChars int) error {
	if err := checkText(name, text, maxChars, codeInvalidText, codeFieldTooLong); err != nil {
		return err
	}
	if strings.ContainsAny(text, "\r\n\t") {
		return problemf(codeInvalidText, "%s has a line end or a tab", name).about(name)
	}
	return nil
}

// readJSON reads the request's JSON object into v: known fields only, nothing after it, at most maxJSONBytes.
// With optional an empty body leaves v as it is.
func readJSON(c *gin.Context, v any, optional bool) error {
	allowRead(c, readTimeout)
	defer allowRead(c, 0)
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxJSONBytes))
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 && optional {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return problemf(codeUnsupportedMedia, "send the body as application/json")
	}
	if !utf8.Valid(body) {
		return problemf(codeBadJSON, "the body is not valid UTF-8")
	}
	if name, twice := keyTwice(body); twice {
		return problemf(codeBadJSON, "field %s stands more than once; send it once", shown(name)).about(cut(name, maxFilter))
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return jsonProblem(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return problemf(codeBadJSON, "there is more after the JSON object")
	}
	return nil
}

// keyTwice finds a key that stands twice in one object of a JSON text, in whatever case: the decoder would take the last one, and
// another reader of the same text the first. What is not JSON has none.
func keyTwice(body []byte) (string, bool) {
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
		return problemf(codeBadJSON, "field %s is a %s, expected is %s", kind.Field, kind.Value, kind.Type).about(kind.Field)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return problemf(codeBadJSON, "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return problemf(codeBadJSON, "unknown field %s", shown(strings.Trim(name, `"`))).about(cut(strings.Trim(name, `"`), maxFilter))
	}
	return &apiError{code: codeBadJSON, message: fmt.Sprintf("not a JSON object: %s", err), cause: err}
}

// allowRead gives the body d from now on; 0 takes the deadline away.
func allowRead(c *gin.Context, d time.Duration) {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	_ = http.NewResponseController(c.Writer).SetReadDeadline(until)
}

// oneWord is one of the known words, or empty.
func oneWord[T ~string](c *gin.Context, name string, known []T) (T, error) {
	words, err := enumParam(c, name, known)
	if err != nil || len(words) == 0 {
		return "", err
	}
	if len(words) > 1 {
		return "", problemf(codeInvalidParameter, "parameter %s takes one word", name).about(name)
	}
	return words[0], nil
}

// pathID is a UUID of the path in its usual form.
func pathID(c *gin.Context, name string) (string, bool) {
	id := strings.ToLower(c.Param(name))
	return id, isUUID(id)
}

// isUUID reports whether text is a UUID in lower case with hyphens.
func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		b := text[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if b != '-' {
				return false
			}
			continue
		}
		if (b < '0' || b > '9') && (b < 'a' || b > 'f') {
			return false
		}
	}
	return true
}

// network is what one caller can choose from at will: an IPv4 address, or a /64 of IPv6.
func network(ip string) string {
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

// baseName checks a base's id or name as it comes in; empty stays empty.
func baseName(field, text string) (string, error) {
	text = strings.TrimSpace(text)
	if err := checkLine(field, text, maxBaseName); err != nil {
		return "", err
	}
	return text, nil
}

// baseFilter is the id of the base that a list is limited to; empty: none.
func baseFilter(c *gin.Context, svc ingest.Service) (string, error) {
	idOrName, err := baseName("knowledgeBase", c.Query("knowledgeBase"))
	if err != nil || idOrName == "" {
		return "", err
	}
	b, err := svc.Base(c.Request.Context(), caller(c), idOrName)
	return b.ID, err
}

// stageParam is one stage; empty when it is not given.
func stageParam(c *gin.Context) (taskstate.Stage, error) {
	given, err := enumParam(c, "stage", stages())
	if err != nil || len(given) == 0 {
		return "", err
	}
	if len(given) > 1 {
		return "", problemf(codeInvalidParameter, "parameter stage takes one stage").about("stage")
	}
	return given[0], nil
}

func stages() []taskstate.Stage {
	return []taskstate.Stage{
		taskstate.StageNone, taskstate.StageExtract, taskstate.StageSplit, taskstate.StageEmbed,
		taskstate.StageIndex, taskstate.StageSwitch, taskstate.StageRun, taskstate.StageDone,
	}
}

// documentID is the path's id; what cannot be one answers as an unknown one.
func documentID(c *gin.Context) (string, error) {
	id, ok := pathID(c, "documentId")
	if !ok {
		return "", ingest.ErrDocumentNotFound
	}
	return id, nil
}
