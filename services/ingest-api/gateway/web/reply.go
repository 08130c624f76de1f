package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/wire"
)

// WriteTimeout bounds one write to a client: who does not read for that long is let go.
const WriteTimeout = 20 * time.Second

// Show sends what a step found, as view shows it, or returns the step's error.
func Show[R, V any](c *gin.Context, view func(R) V) func(found R, err error) error {
	return func(found R, err error) error {
		if err != nil {
			return err
		}
		return JSON(c, http.StatusOK, view(found))
	}
}

// ShowTagged is Show with an ETag, or 304 when the caller has this very state.
func ShowTagged[R, V any](c *gin.Context, view func(R) V) func(found R, err error) error {
	return func(found R, err error) error {
		if err != nil {
			return err
		}
		v := Veil(c, view(found))
		if NotModified(c, ETag(v), "private, no-cache") {
			return nil
		}
		return JSON(c, http.StatusOK, v)
	}
}

// JSON returns with a JSON body, of which the caller sees what is not hidden from it.
func JSON(c *gin.Context, status int, v any) error {
	Write(c, "application/json", status, Render(Veil(c, v)))
	return nil
}

// Write sends a body with its type and length.
func Write(c *gin.Context, contentType string, status int, body []byte) {
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	AllowWrite(c)
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(body) // a client that is gone is seen by the connection
}

// Locate says where the caller finds what was made: path is the gateway's, behind what a proxy has taken away before it.
func Locate(c *gin.Context, path string) {
	c.Writer.Header().Set("Location", RequestOf(c).Prefix+path)
}

// WriteProblem writes a refusal before a request reaches the routes.
func WriteProblem(w http.ResponseWriter, p wire.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(Render(p))
}

// Render is v as JSON with a line's end; views hold nothing that JSON cannot say.
func Render(v any) []byte {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic("gateway: render " + err.Error())
	}
	return b.Bytes()
}

// AllowWrite gives the client writeTimeout to take the next write; recorders in tests know no deadlines.
func AllowWrite(c *gin.Context) {
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(WriteTimeout))
}

// ETag is the strong tag of what v looks like now.
func ETag(v any) string { return ETagOf(Render(v)) }

// ETagOf is the strong tag of a body.
func ETagOf(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// NotModified sets the tag and the rule of the answer, and sends 304 when the caller has this very state.
func NotModified(c *gin.Context, tag, rule string) bool {
	c.Writer.Header().Set("ETag", tag)
	c.Writer.Header().Set("Cache-Control", rule)
	if !Matches(c.Request.Header.Values("If-None-Match"), tag, true) {
		return false
	}
	c.Writer.WriteHeader(http.StatusNotModified)
	c.Writer.WriteHeaderNow()
	return true
}

// Matches reports whether a list of tags names tag; weak ones count only where the rule allows (RFC 9110 §13.1).
func Matches(headers []string, tag string, weak bool) bool {
	for _, given := range strings.Split(strings.Join(headers, ","), ",") {
		given = strings.TrimSpace(given)
		if given == "*" || given == tag || weak && given == "W/"+tag {
			return true
		}
	}
	return false
}

// NoContent is the answer to a step that leaves nothing to show, or the step's error.
func NoContent(c *gin.Context, err error) error {
	if err != nil {
		return err
	}
	c.Writer.WriteHeader(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}
