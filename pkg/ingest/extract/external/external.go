// Package external has documents converted by a service of another kind: Apache Tika or Docling. What comes back is a web page, which our own
// reader reads as it does any other: it is as little trusted.
package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/gabriel-vasile/mimetype"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

// Client calls one service. It is safe for concurrent use.
type Client struct {
	kind     detect.Kind
	client   *rest.Client
	maxReply int64
}

// New returns a client of the service at base, which may hold a login. key is sent as a Bearer token to Tika, as X-Api-Key to Docling; empty:
// none. maxReply bounds the page that comes back, in bytes. Nothing is called yet. Errors: rest.ErrBaseURL.
func New(kind detect.Kind, base, key string, maxReply int64) (*Client, error) {
	header := http.Header{"User-Agent": {"millweir"}}
	if key != "" && kind == detect.Docling {
		header.Set("X-Api-Key", key)
	} else if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	client, err := rest.New(base, header, key)
	if err != nil {
		return nil, fmt.Errorf("EXTRACT_URL: %w", err)
	}
	return &Client{kind: kind, client: client, maxReply: maxReply}, nil
}

// Close ends the connections that are not in use.
func (c *Client) Close() { c.client.CloseIdle() }

// Convert sends a file of that size and returns it as a web page, and what the page is without, if the service says so.
// Errors: *ingest.Failure, permanent when the service refuses the file; ctx's.
func (c *Client) Convert(ctx context.Context, file io.ReaderAt, size int64, mediaType string, timeout time.Duration) (page []byte, warning string, err error) {
	body := io.NewSectionReader(file, 0, size)
	call := rest.Call{Method: http.MethodPut, Path: "/tika", Upload: body, Size: size, MaxReply: c.maxReply, Timeout: timeout,
		Header: http.Header{"Accept": {"text/html"}, "Content-Type": {mediaType}}}
	if c.kind == detect.Docling {
		call, err = doclingCall(body, size, mediaType)
		if err != nil {
			return nil, "", err
		}
		call.MaxReply, call.Timeout = c.maxReply, timeout
	}
	reply, err := c.client.Do(ctx, call)
	if err != nil {
		return nil, "", c.failure(ctx, err)
	}
	if c.kind == detect.Docling {
		return doclingPage(c.client, reply)
	}
	if !bytes.Contains(reply, tikaMark) {
		f := ingest.Transient(ingest.CodeExtractCrashed, "convert the document: the page that came back is not Tika's: %s", c.client.Cause(reply))
		f.Remedy = "See whether EXTRACT_URL is the address of a Tika server, and what stands before it."
		return nil, "", f
	}
	return reply, "", nil
}

// tikaMark is in the head of every page that Tika makes: the parsers that made it, as X-TIKA:Parsed-By, before version 2 X-Parsed-By.
var tikaMark = []byte(`Parsed-By"`)

// failure says what a call that brought no page means for the document.
func (c *Client) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, rest.ErrReplyTooLarge) {
		return document.OverLimit("convert the document: %w", err)
	}
	status, ok := errors.AsType[*rest.StatusError](err)
	if !ok {
		return ingest.Transient(ingest.CodeExtractCrashed, "convert the document: %w", err)
	}
	switch status.Status {
	case http.StatusUnsupportedMediaType:
		return document.Unsupported("convert the document: %w", err)
	case http.StatusRequestEntityTooLarge:
		return document.OverLimit("convert the document: %w", err)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusTooManyRequests:
		// The service or its address, not the document.
		return ingest.Transient(ingest.CodeExtractCrashed, "convert the document: %w", err)
	}
	if status.Status >= 400 && status.Status < 500 {
		return document.Corrupt("convert the document: %w", err)
	}
	return ingest.Transient(ingest.CodeExtractCrashed, "convert the document: %w", err)
}

// doclingCall is a form with the file. Docling tells the format by the name's end; the user's own name is not sent.
func doclingCall(file io.Reader, size int64, mediaType string) (rest.Call, error) {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	for _, field := range [][2]string{{"to_formats", "html"}, {"image_export_mode", "placeholder"}} {
		if err := form.WriteField(field[0], field[1]); err != nil {
			return rest.Call{}, err
		}
	}
	extension := ""
	if known := mimetype.Lookup(mediaType); known != nil {
		extension = known.Extension()
	}
	_, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="files"; filename="document` + extension + `"`}, "Content-Type": {mediaType},
	})
	if err != nil {
		return rest.Call{}, err
	}
	before := head.Len()
	if err := form.Close(); err != nil {
		return rest.Call{}, err
	}
	tail := bytes.Clone(head.Bytes()[before:])
	head.Truncate(before)
	total := int64(head.Len()) + size + int64(len(tail))
	return rest.Call{
		Method: http.MethodPost, Path: "/v1/convert/file", Upload: io.MultiReader(&head, file, bytes.NewReader(tail)), Size: total,
		Header: http.Header{"Content-Type": {form.FormDataContentType()}},
	}, nil
}

// doclingPage takes the page out of Docling's reply.
func doclingPage(client *rest.Client, reply []byte) (page []byte, warning string, err error) {
	var said struct {
		Document struct {
			HTML string `json:"html_content"`
		} `json:"document"`
		Status string `json:"status"`
		Errors []struct {
			Message string `json:"error_message"`
		} `json:"errors"`
	}
	if err := json.Unmarshal(reply, &said); err != nil {
		return nil, "", ingest.Transient(ingest.CodeExtractCrashed, "read the reply of the conversion: %w", err)
	}
	var words strings.Builder
	for _, e := range said.Errors {
		words.WriteString(e.Message + " ")
	}
	cause := client.Cause([]byte(words.String()))
	switch said.Status {
	case "success":
		return []byte(said.Document.HTML), "", nil
	case "partial_success":
		return []byte(said.Document.HTML), strings.TrimSpace("a part of the document was not converted: " + cause), nil
	case "failure", "skipped":
		return nil, "", document.Corrupt("convert the document: %s: %s", said.Status, cause)
	}
	return nil, "", ingest.Transient(ingest.CodeExtractCrashed, "convert the document: status %q", document.CleanTitle(said.Status))
}
