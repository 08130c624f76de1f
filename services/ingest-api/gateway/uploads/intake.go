package uploads

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
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// intake is one upload request as it is being taken in.
type intake struct {
	who        ingest.Caller
	key        string // Idempotency-Key as it came; empty: none
	unclaimed  string // the same if the request was received before it claimed its key
	title      string
	metadata   ingest.Metadata
	base       string
	force      bool
	documentID string // PUT: the document to renew; of a preview: the one to look at
	preview    workflows.Previewing
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
}

// newIntake reads what stands outside of the body. Nothing of the body has been read when it fails.
func (g *Handler) newIntake(c *gin.Context, fields []string) (*intake, error) {
	if web.Stopped(g.Draining) {
		return nil, &web.Error{Code: web.CodeStopping}
	}
	in := &intake{who: web.Caller(c), fields: fields}
	var err error
	if in.key, err = web.IdempotencyKey(c.Request.Header); err != nil {
		return nil, err
	}
	for _, name := range fields {
		if text, given := c.GetQuery(name); given {
			if err := in.set(name, text); err != nil {
				return nil, err
			}
		}
	}
	if err := g.Svc.Admit(c.Request.Context()); err != nil {
		return nil, err
	}
	return in, web.TakeToken(c, g.Limiter, g.Metrics)
}

// set takes one field of the form or the query; the form's value wins because it comes later.
func (in *intake) set(name, text string) error {
	if !slices.Contains(in.fields, name) {
		return web.Errorf(web.CodeUnknownParameter, "unknown form field %s; known here: file, %s", web.Shown(name), strings.Join(in.fields, ", ")).About(web.Cut(name, web.MaxFilter))
	}
	var err error
	switch name {
	case "title":
		in.title, err = ingest.CleanTitle(name, text)
	case "metadata":
		in.metadata, err = ingest.ParseMetadata(name, text)
	case "knowledgeBase":
		in.base, err = ingest.CleanBase(name, text)
	case "force":
		force, ok := web.ParseBool(text)
		if !ok {
			return web.Errorf(web.CodeInvalidField, "force is %s, allowed are true and false", web.Shown(text)).About(name)
		}
		in.force = force
	case "chunking", "limit":
		err = in.setPreview(name, text)
	}
	return err
}

// takeIn reads the whole form. When it fails every received file has been discarded.
func (g *Handler) takeIn(c *gin.Context, in *intake, maxFiles int) (err error) {
	share, err := g.Shares.Upload(in.who.Scope.UserID)
	if err != nil {
		return err
	}
	defer share.Close()
	form, err := openParts(c, g.Limits, g.Now)
	if err != nil {
		return err
	}
	form.meter.count = share.Take
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
		return &web.Error{Code: web.CodeFileRequired, Parameter: "file"}
	}
	return nil
}

// takePart takes one part in. A file that is refused for what it is stands in the intake with its error; the others go on.
func (g *Handler) takePart(c *gin.Context, in *intake, part *multipart.Part, maxFiles int) error {
	fileName, isFile := rawFileName(part)
	name := part.FormName()
	if name != "file" {
		if isFile {
			return web.Errorf(web.CodeFileRequired, "the file is in the part %s, it has to be in the part file", web.Shown(name)).About(web.Cut(name, web.MaxFilter))
		}
		text, err := field(part)
		if err != nil {
			return err
		}
		if slices.Contains(in.seen, name) {
			return web.Errorf(web.CodeInvalidParameter, "form field %s stands more than once; send it once", web.Shown(name)).About(web.Cut(name, web.MaxFilter))
		}
		in.seen = append(in.seen, name)
		return in.set(name, text)
	}
	if !isFile {
		return web.Errorf(web.CodeFileRequired, "the part file has no file name; use `curl -F file=@name`").About("file")
	}
	if len(in.files) >= maxFiles {
		return web.Errorf(web.CodeInvalidField, "this address takes one file").About("file")
	}
	f := intakeFile{name: CleanFileName(fileName)}
	if len(in.files) > 0 {
		f.err = web.TakeToken(c, g.Limiter, g.Metrics)
	}
	source := &capped{r: part, left: g.Limits.FileBytes}
	if f.err == nil {
		f.file, f.err = g.Svc.Receive(c.Request.Context(), source, f.name)
	}
	switch {
	case f.err == nil:
		g.Metrics.Bytes.Add(float64(f.file.Bytes))
	case errors.Is(f.err, ingest.ErrTooLarge):
		return &web.Error{
			Code: web.CodeTooLarge, Parameter: f.name, Cause: f.err,
			Message: fmt.Sprintf("the file %s is larger than %d bytes", web.Shown(f.name), g.Limits.FileBytes),
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
		return web.Kinds[string(failure.Code)].Status < http.StatusInternalServerError && failure.Code != ingest.CodeInternal
	}
	return web.Classify(err).Code == web.CodeRateLimited
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

// discard removes what was received, before any of it is accepted.
func (g *Handler) discard(in *intake) {
	for _, f := range in.files {
		if f.err == nil {
			g.Svc.Discard(f.file)
		}
	}
}

// receiveAll takes a request's files in and accepts them in their order.
func (g *Handler) receiveAll(c *gin.Context, in *intake, maxFiles int) error {
	claim, err := g.claimKey(c, in)
	if err != nil {
		return err
	}
	defer claim.close()
	if err := g.takeIn(c, in, maxFiles); err != nil {
		g.Metrics.Uploads.WithLabelValues(web.UploadRefused).Inc()
		return err
	}
	if err := g.withinBase(c, in); err != nil {
		g.discard(in)
		return err
	}
	if in.unclaimed, err = claim.received(); err != nil {
		g.discard(in)
		return err
	}
	g.accept(c.Request.Context(), in)
	for i := range in.files {
		f := &in.files[i]
		if f.err == nil && f.accepted.Replayed && f.accepted.Task.DocumentID != "" { // of the same key, maybe in another base
			f.err = web.WithinTask(c, f.accepted.Task)
		}
		g.countUpload(*f)
	}
	return nil
}

// withinBase refuses what a key that is limited to knowledge bases sends to another one. A further version stays in its document's.
func (g *Handler) withinBase(c *gin.Context, in *intake) error {
	if in.documentID != "" {
		return nil
	}
	return web.WithinBase(c, g.Svc, in.base)
}

// accept commits the received files, together. It does not end with the client's connection:
// a commit that was cut off half-way would leave nobody knowing whether the files are needed.
func (g *Handler) accept(ctx context.Context, in *intake) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acceptTimeout)
	defer cancel()
	var received []*intakeFile
	var uploads []ingest.Upload
	for i := range in.files {
		f := &in.files[i]
		if f.err != nil || in.unpacks(*f) {
			continue
		}
		u := ingest.Upload{File: f.file, Title: in.title, Metadata: in.metadata, Base: in.base, DocumentID: in.documentID, Force: in.force}
		if in.key != "" {
			u.IdempotencyKey, u.Unclaimed = fmt.Sprintf("%s/%d", in.key, i+1), in.unclaimed
		}
		received, uploads = append(received, f), append(uploads, u)
	}
	g.acceptArchives(ctx, in)
	accepted, errs := g.Svc.AcceptAll(ctx, in.who, uploads)
	for i, f := range received {
		f.accepted, f.err = accepted[i], errs[i]
		if f.err != nil {
			g.Svc.Discard(f.file)
		}
	}
}

// countUpload counts one file's result.
func (g *Handler) countUpload(f intakeFile) {
	result := web.UploadAccepted
	switch {
	case f.err != nil:
		result = web.UploadRefused
	case f.accepted.Replayed:
		result = web.UploadReplayed
	case f.accepted.Duplicate:
		result = web.UploadDuplicate
	}
	g.Metrics.Uploads.WithLabelValues(result).Inc()
}
