package gateway

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

// pageOf cuts the one row that was asked for beyond the limit, and makes the cursor of the last row that stays.
func pageOf[R, V any](rows []R, limit int, view func(R) V, next func(R) cursor) wire.List[V] {
	out := wire.List[V]{Items: make([]V, 0, min(len(rows), limit))}
	if len(rows) > limit {
		rows = rows[:limit]
		out.NextCursor, out.HasMore = wire.NullText(next(rows[limit-1]).encode()), true
	}
	for _, r := range rows {
		out.Items = append(out.Items, view(r))
	}
	return out
}

// writeJSON returns with a JSON body.
func writeJSON(c *gin.Context, status int, v any) error {
	writeJSONAs(c, "application/json", status, v)
	return nil
}

func writeJSONAs(c *gin.Context, contentType string, status int, v any) {
	body := render(v)
	h := c.Writer.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	allowWrite(c)
	c.Writer.WriteHeader(status)
	_, _ = c.Writer.Write(body) // a client that is gone is seen by the connection
}

// writeProblem writes a refusal before a request reaches the routes.
func writeProblem(w http.ResponseWriter, p wire.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(render(p))
}

// render is v as JSON with a line's end; views hold nothing that JSON cannot say.
func render(v any) []byte {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		panic("gateway: render " + err.Error())
	}
	return b.Bytes()
}

// allowWrite gives the client writeTimeout to take the next write; recorders in tests know no deadlines.
func allowWrite(c *gin.Context) {
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// etagOf is the strong tag of what v looks like now.
func etagOf(v any) string {
	sum := sha256.Sum256(render(v))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// writeTagged returns with an ETag, or 304 when the caller has this very state.
func writeTagged(c *gin.Context, v any) error {
	tag := etagOf(v)
	c.Writer.Header().Set("ETag", tag)
	c.Writer.Header().Set("Cache-Control", "private, no-cache")
	if matches(c.Request.Header.Values("If-None-Match"), tag, true) {
		c.Writer.WriteHeader(http.StatusNotModified)
		c.Writer.WriteHeaderNow()
		return nil
	}
	return writeJSON(c, http.StatusOK, v)
}

// matches reports whether a list of tags names tag; weak ones count only where the rule allows (RFC 9110 §13.1).
func matches(headers []string, tag string, weak bool) bool {
	for _, given := range strings.Split(strings.Join(headers, ","), ",") {
		given = strings.TrimSpace(given)
		if given == "*" || given == tag || weak && given == "W/"+tag {
			return true
		}
	}
	return false
}

// whole is a list that is one page: the registry, the groups and the members are read as a whole anyway.
func whole[R, V any](rows []R, view func(R) V) wire.List[V] {
	out := wire.List[V]{Items: make([]V, len(rows))}
	for i, r := range rows {
		out.Items[i] = view(r)
	}
	return out
}

func noContent(c *gin.Context) error {
	c.Writer.WriteHeader(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}
