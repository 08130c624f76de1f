package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	maxTitle  = 500
	maxKeyLen = 180 // the part's number is added, and the column takes 190
)

// intake is one upload request as it is being taken in.
type intake struct {
	who        ingest.Caller
	key        string // Idempotency-Key as it came; empty: none
	title      string
	base       string
	force      bool
	documentID string // PUT: the document to renew
	fields     []string
	seen       []string // of the form
	files      []intakeFile
}

// intakeFile is one file of the request: received, or why not.
type intakeFile struct {
	name     string
	file     ingest.ReceivedFile
	accepted ingest.Accepted
	err      error
	taken    bool // received and not yet accepted: to be discarded when the request fails
}

// newIntake reads what stands outside of the body. Nothing of the body has been read when it fails.
func (g *uploads) newIntake(c *gin.Context, fields []string) (*intake, error) {
	if stopped(g.draining) {
		return nil, &apiError{code: codeStopping}
	}
	in := &intake{who: caller(c), fields: fields}
	var err error
	if in.key, err = idempotencyKey(c.Request.Header); err != nil {
		return nil, err
	}
	for _, name := range fields {
		if text, given := c.GetQuery(name); given {
			if err := in.set(name, text); err != nil {
				return nil, err
			}
		}
	}
	if err := g.svc.Admit(c.Request.Context()); err != nil {
		return nil, err
	}
	return in, g.takeToken(c)
}

// idempotencyKey is the header's value: printable ASCII, as it will be compared byte by byte.
func idempotencyKey(h http.Header) (string, error) {
	values, given := h["Idempotency-Key"]
	if !given {
		return "", nil
	}
	bad := (&apiError{code: codeInvalidKey}).about("Idempotency-Key")
	if len(values) != 1 || len(values[0]) == 0 || len(values[0]) > maxKeyLen {
		return "", bad
	}
	for i := range len(values[0]) {
		if b := values[0][i]; b < 0x20 || b > 0x7e {
			return "", bad
		}
	}
	return values[0], nil
}

// set takes one field of the form or the query; the form's value wins because it comes later.
func (in *intake) set(name, text string) error {
	if !slices.Contains(in.fields, name) {
		return problemf(codeUnknownParameter, "unknown form field %s; known here: file, %s", shown(name), strings.Join(in.fields, ", ")).about(cut(name, maxFilter))
	}
	switch name {
	case "title":
		text = strings.TrimSpace(text)
		if err := checkLine(name, text, maxTitle); err != nil {
			return err
		}
		in.title = text
	case "knowledgeBase":
		base, err := baseName(name, text)
		if err != nil {
			return err
		}
		in.base = base
	case "force":
		force, ok := parseBool(text)
		if !ok {
			return problemf(codeInvalidField, "force is %s, allowed are true and false", shown(text)).about(name)
		}
		in.force = force
	}
	return nil
}

// takeToken asks the rate limit for one file: the user first, then the address.
func (g *uploads) takeToken(c *gin.Context) error {
	if g.limiter == nil {
		return nil
	}
	for _, key := range []string{"user:" + requestOf(c).principal.UserID, "ip:" + network(c.ClientIP())} {
		r, err := g.limiter.Take(c.Request.Context(), key)
		if err != nil {
			return fmt.Errorf("ask the rate limit: %w", err)
		}
		if !r.Allowed {
			g.metrics.limited.Inc()
			return &apiError{code: codeRateLimited, retryAfter: r.RetryAfter}
		}
	}
	return nil
}

// takeIn reads the whole form. When it fails every received file has been discarded.
func (g *uploads) takeIn(c *gin.Context, in *intake, maxFiles int) (err error) {
	share, err := g.shares.upload(in.who.Scope.UserID)
	if err != nil {
		return err
	}
	defer share.close()
	form, err := openParts(c, g.limits, g.now)
	if err != nil {
		return err
	}
	form.meter.count = share.take
	defer form.close()
	defer func() {
		if err != nil {
			g.discard(in)
		}
	}()
	var part *multipart.Part
	for {
		if part, err = form.next(part); errors.Is(err, errNoMoreParts) {
			break
		}
		if err == nil {
			err = g.takePart(c, in, part, maxFiles)
		}
		if err != nil {
			return err
		}
	}
	if len(in.files) == 0 {
		return &apiError{code: codeFileRequired, parameter: "file"}
	}
	return nil
}

// takePart takes one part in. A file that is refused for what it is stands in the intake with its error; the others go on.
func (g *uploads) takePart(c *gin.Context, in *intake, part *multipart.Part, maxFiles int) error {
	fileName, isFile := rawFileName(part)
	name := part.FormName()
	if name != "file" {
		if isFile {
			return problemf(codeFileRequired, "the file is in the part %s, it has to be in the part file", shown(name)).about(cut(name, maxFilter))
		}
		text, err := field(part)
		if err != nil {
			return err
		}
		if slices.Contains(in.seen, name) {
			return problemf(codeInvalidParameter, "form field %s stands more than once; send it once", shown(name)).about(cut(name, maxFilter))
		}
		in.seen = append(in.seen, name)
		return in.set(name, text)
	}
	if !isFile {
		return problemf(codeFileRequired, "the part file has no file name; use `curl -F file=@name`").about("file")
	}
	if len(in.files) >= maxFiles {
		return problemf(codeInvalidField, "this address takes one file").about("file")
	}
	f := intakeFile{name: cleanFileName(fileName)}
	if len(in.files) > 0 {
		f.err = g.takeToken(c)
	}
	source := &capped{r: part, left: g.limits.fileBytes}
	if f.err == nil {
		f.file, f.err = g.svc.Receive(c.Request.Context(), source, f.name)
	}
	switch {
	case f.err == nil:
		f.taken = true
		g.metrics.bytes.Add(float64(f.file.Bytes))
	case errors.Is(f.err, ingest.ErrTooLarge):
		return &apiError{
			code: codeTooLarge, parameter: f.name, cause: f.err,
			message: fmt.Sprintf("the file %s is larger than %d bytes", shown(f.name), g.limits.fileBytes),
		}
	case source.err != nil:
		return formError(source.err)
	case !aboutFile(f.err):
		return f.err
	}
	in.files = append(in.files, f)
	return nil
}

// aboutFile reports whether an error says something about this one file only.
func aboutFile(err error) bool {
	var failure *ingest.Failure
	if errors.As(err, &failure) {
		return kinds[string(failure.Code)].Status < http.StatusInternalServerError && failure.Code != ingest.CodeInternal
	}
	return classify(err).code == codeRateLimited
}

// capped ends a file beyond its limit with ingest.ErrTooLarge.
type capped struct {
	r    io.Reader
	left int64
	err  error // the reader's own, other than its end
}

// Read reads one byte beyond the limit to tell "just fits" from "too large".
func (l *capped) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	if l.left -= int64(n); l.left < 0 {
		return 0, ingest.ErrTooLarge
	}
	return n, err
}

// discard removes what was received and not accepted.
func (g *uploads) discard(in *intake) {
	for i := range in.files {
		if in.files[i].taken {
			in.files[i].taken = false
			g.svc.Discard(in.files[i].file)
		}
	}
}

// receiveAll takes a request's files in and accepts them in their order.
// The idempotency key is held from before the first byte until the answer is known.
func (g *uploads) receiveAll(c *gin.Context, in *intake, maxFiles int) error {
	if in.key != "" {
		release, err := g.svc.BeginKey(c.Request.Context(), in.who, in.key)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := g.takeIn(c, in, maxFiles); err != nil {
		g.metrics.uploads.WithLabelValues(uploadRefused).Inc()
		return err
	}
	g.accept(c.Request.Context(), in)
	for _, f := range in.files {
		g.countUpload(f)
	}
	return nil
}

// accept commits the received files, together. It does not end with the client's connection:
// a commit that was cut off half-way would leave nobody knowing whether the files are needed.
func (g *uploads) accept(ctx context.Context, in *intake) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acceptTimeout)
	defer cancel()
	var received []*intakeFile
	var uploads []ingest.Upload
	for i := range in.files {
		f := &in.files[i]
		if f.err != nil {
			continue
		}
		u := ingest.Upload{File: f.file, Title: in.title, Base: in.base, DocumentID: in.documentID, Force: in.force}
		if in.key != "" {
			u.IdempotencyKey = fmt.Sprintf("%s/%d", in.key, i+1)
		}
		received, uploads = append(received, f), append(uploads, u)
	}
	accepted, errs := g.svc.AcceptAll(ctx, in.who, uploads)
	for i, f := range received {
		f.accepted, f.err, f.taken = accepted[i], errs[i], false
		if f.err == nil {
			continue
		}
		g.svc.Discard(f.file)
	}
}

// countUpload counts one file's result.
func (g *uploads) countUpload(f intakeFile) {
	result := uploadAccepted
	switch {
	case f.err != nil:
		result = uploadRefused
	case f.accepted.Replayed:
		result = uploadReplayed
	case f.accepted.Duplicate:
		result = uploadDuplicate
	}
	g.metrics.uploads.WithLabelValues(result).Inc()
}
