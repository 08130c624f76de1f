package uploads

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	// MaxFormFieldBytes bounds one text field of a form as it is read; each field has a tighter limit of its own.
	MaxFormFieldBytes = 64 << 10
	// maxParts and maxPartHeaderBytes bound a form's parts (A25).
	maxParts           = 64
	maxPartHeaderBytes = 32 << 10
)

// MaxFileName bounds a file's name, characters.
const MaxFileName = 255

// errPartHeader says that the head of a part is larger than maxPartHeaderBytes.
var errPartHeader = errors.New("the head of a part is too large")

// errNoMoreParts says that the form ended with its closing boundary. It is not io.EOF, which a body that broke off wraps too.
var errNoMoreParts = errors.New("no more parts")

// parts reads a multipart form part by part, never more of it in memory than one field.
type parts struct {
	reader *multipart.Reader
	meter  *meter
	seen   int
}

// openParts checks the request's type and announced length and gives its body the whole request's limits.
func openParts(c *gin.Context, limits Limits, now func() time.Time) (*parts, error) {
	limit := limits.RequestBytes
	kind, attrs, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		return nil, web.Errorf(web.CodeUnsupportedMedia, "send the file as multipart/form-data")
	}
	boundary := attrs["boundary"]
	if boundary == "" || len(boundary) > 70 { // RFC 2046 §5.1.1
		return nil, web.Errorf(web.CodeBadMultipart, "the Content-Type names no boundary of 1 to 70 characters")
	}
	if c.Request.ContentLength > limit {
		return nil, &http.MaxBytesError{Limit: limit}
	}
	m := &meter{
		body:    http.MaxBytesReader(c.Writer, c.Request.Body, limit),
		control: http.NewResponseController(c.Writer), left: -1, now: now, start: now(),
		idle: limits.Idle, longest: limits.Longest, rate: limits.MinRate,
	}
	return &parts{reader: multipart.NewReader(m, boundary), meter: m}, nil
}

// next is the next part; errNoMoreParts after the last one. What is left of the part before is read first, outside of the head's budget.
func (p *parts) next(previous *multipart.Part) (*multipart.Part, error) {
	if previous != nil {
		if _, err := io.Copy(io.Discard, previous); err != nil {
			return nil, formError(err)
		}
	}
	if p.seen++; p.seen > maxParts+1 {
		return nil, web.Errorf(web.CodeTooManyParts, "the form has more than %d parts", maxParts)
	}
	p.meter.left = maxPartHeaderBytes
	part, err := p.reader.NextRawPart()
	p.meter.left = -1
	if err != nil {
		return nil, formError(err)
	}
	if p.seen > maxParts {
		return nil, web.Errorf(web.CodeTooManyParts, "the form has more than %d parts", maxParts)
	}
	return part, nil
}

// field reads a text part.
func field(part *multipart.Part) (string, error) {
	text, err := io.ReadAll(io.LimitReader(part, MaxFormFieldBytes+1))
	if err != nil {
		return "", formError(err)
	}
	if len(text) > MaxFormFieldBytes {
		return "", web.Errorf(web.CodeFieldTooLong, "%s is longer than %d bytes", web.Shown(part.FormName()), MaxFormFieldBytes).About(web.Cut(part.FormName(), web.MaxFilter))
	}
	return string(text), nil
}

// formError gives an error of the form's own its code; errors of the connection and of the limits stay.
func formError(err error) error {
	var tooLarge *http.MaxBytesError
	var known *web.Error
	switch {
	case errors.As(err, &known): // the meter's
		return known
	case err == io.EOF: //nolint:errorlint // the form's own end is never wrapped, and a wrapped one is not the form's
		return errNoMoreParts
	case errors.As(err, &tooLarge), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "unexpected EOF"), strings.HasSuffix(err.Error(), "NextPart: EOF"):
		// "multipart: NextPart: EOF": the body ended between two parts without the closing boundary.
		return &web.Error{Code: web.CodeIncompleteBody, Cause: err}
	case errors.Is(err, errPartHeader), errors.Is(err, multipart.ErrMessageTooLarge):
		return &web.Error{Code: web.CodeBadMultipart, Message: "the head of a part is larger than 32 KiB", Cause: err}
	case strings.Contains(err.Error(), "malformed MIME header"):
		return &web.Error{
			Code: web.CodeBadMultipart, Cause: err,
			Message: "the head of a part cannot be read: names in it must not hold NUL, line ends or other control characters",
		}
	}
	return &web.Error{Code: web.CodeBadMultipart, Cause: err}
}

// RateGrace is how long a client may send as slowly as it likes: connections begin slowly.
const RateGrace = time.Minute

// meter counts what heads of parts may still take, and ends a body that stands still, is too slow, or takes too long.
type meter struct {
	body    io.Reader
	control *http.ResponseController
	left    int64             // bytes; negative: no budget
	count   func(n int) error // of what was read; nil: nobody counts
	now     func() time.Time
	start   time.Time

	idle, longest time.Duration
	rate          int64 // lowest, bytes a second of waiting for the client; 0: any

	got    int64
	waited time.Duration // for the client, not for our own disk and database
}

// Read gives every read of the connection the idle time anew, within what the whole request may take.
func (m *meter) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, errPartHeader
	}
	if m.left > 0 && int64(len(p)) > m.left {
		p = p[:m.left]
	}
	before := m.now()
	wait, err := m.waitLimit(before)
	if err != nil {
		return 0, err
	}
	_ = m.control.SetReadDeadline(time.Now().Add(wait))
	n, err := m.body.Read(p)
	after := m.now()
	m.got, m.waited = m.got+int64(n), m.waited+after.Sub(before)
	if m.left > 0 {
		m.left -= int64(n)
	}
	if _, late := m.waitLimit(after); late != nil && (n > 0 || errors.Is(err, os.ErrDeadlineExceeded)) {
		return 0, late // the limit that was met, in place of a plain time-out
	}
	if m.count != nil && n > 0 {
		if over := m.count(n); over != nil {
			return 0, over
		}
	}
	return n, err
}

// waitLimit is how long the client may keep us waiting now, or which of the request's limits it has met.
func (m *meter) waitLimit(now time.Time) (time.Duration, error) {
	left := m.longest - now.Sub(m.start)
	if left <= 0 {
		return 0, web.Errorf(web.CodeUploadTooLong, "the request is not received after %s, which is the longest that is allowed (UPLOAD_MAX_DURATION)", m.longest)
	}
	wait := min(m.idle, left)
	if m.rate > 0 {
		spare := max(RateGrace, time.Duration(float64(m.got)/float64(m.rate)*float64(time.Second))) - m.waited
		if spare <= 0 {
			return 0, web.Errorf(web.CodeUploadTooSlow, "%d bytes came in %s, at least %d bytes a second are asked (UPLOAD_MIN_BYTES_PER_SECOND)",
				m.got, m.waited.Round(time.Second), m.rate)
		}
		wait = min(wait, spare)
	}
	return wait, nil
}

// close takes the idle time away, or it would end the connection while the answer is made.
func (p *parts) close() { _ = p.meter.control.SetReadDeadline(time.Time{}) }

// CleanFileName is the last part of a path in either system's style, without control characters; "upload" when nothing is left.
// It is data for people: no file of ours is ever named by it.
func CleanFileName(given string) string {
	name := path.Base(strings.ReplaceAll(strings.ToValidUTF8(given, "\uFFFD"), `\`, "/"))
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) { // Cf: bidi overrides that make exe look like pdf
			return -1
		}
		return r
	}, name))
	if name == "" || name == "." || name == ".." || name == "/" {
		return "upload"
	}
	if runes := []rune(name); len(runes) > MaxFileName {
		ext := []rune(path.Ext(name)) // the type's hint stays
		if len(ext) > 16 {
			ext = nil
		}
		name = string(runes[:MaxFileName-len(ext)]) + string(ext)
	}
	return name
}

// rawFileName is a part's file name as the client sent it, and whether it sent one.
// multipart's own FileName cuts at slashes already and hides an unreadable head.
func rawFileName(part *multipart.Part) (string, bool) {
	_, attrs, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", false
	}
	name, given := attrs["filename"]
	return name, given
}
