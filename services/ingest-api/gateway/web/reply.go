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

// PageOf cuts the one row that was asked for beyond the limit, and makes the cursor of the last row that stays.
func PageOf[R, V any](rows []R, limit int, view func(R) V, next func(R) Cursor) wire.List[V] {
	out := wire.List[V]{Items: make([]V, 0, min(len(rows), limit))}
	if len(rows) > limit {
		rows = rows[:limit]
		out.NextCursor, out.HasMore = wire.NullText(next(rows[limit-1]).Encode()), true
	}
	for _, r := range rows {
		out.Items = append(out.Items, view(r))
	}
	return out
}

// JSON returns with a JSON body.
func JSON(c *gin.Context, status int, v any) error {
	JSONAs(c, "application/json", status, v)
	return nil
}

func JSONAs(c *gin.Context, contentType string, status int, v any) {
	body := Render(v)
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	AllowWrite(c)
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(body) // a client that is gone is seen by the connection
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
func ETag(v any) string {
	sum := sha256.Sum256(Render(v))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// Tagged returns with an ETag, or 304 when the caller has this very state.
func Tagged(c *gin.Context, v any) error {
	tag := ETag(v)
	c.Writer.Header().Set("ETag", tag)
	c.Writer.Header().Set("Cache-Control", "private, no-cache")
	if Matches(c.Request.Header.Values("If-None-Match"), tag, true) {
		c.Writer.WriteHeader(http.StatusNotModified)
		c.Writer.WriteHeaderNow()
		return nil
	}
	return JSON(c, http.StatusOK, v)
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

// Whole is a list that is one page: the registry, the groups and the members are read as a whole anyway.
func Whole[R, V any](rows []R, view func(R) V) wire.List[V] {
	out := wire.List[V]{Items: make([]V, len(rows))}
	for i, r := range rows {
		out.Items[i] = view(r)
	}
	return out
}

func NoContent(c *gin.Context) error {
	c.Writer.WriteHeader(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}
