package documents

import (
	"math"
	"mime"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// file sends the bytes of a version as they were uploaded, whole or in ranges. A browser shows a PDF, at the page that its address
// names (#page=N). All else is a download, so that no file is a page of ours.
func (g *Handler) file(c *gin.Context, id string) error {
	p := web.ParamsOf(c)
	version := p.Int("version", 0, 1, math.MaxInt)
	if p.Err() != nil {
		return p.Err()
	}
	o, err := g.Svc.Original(c.Request.Context(), web.Caller(c), id, int64(version))
	if err != nil {
		return err
	}
	defer func() { _ = o.File.Close() }()
	h := c.Writer.Header()
	h.Set("Content-Type", o.MediaType)
	h.Set("ETag", `"`+o.SHA256+`"`)
	h.Set("Cache-Control", "private, no-cache")
	disposition := "attachment"
	if o.MediaType == "application/pdf" {
		disposition = "inline"
	}
	h.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": o.Name}))
	w := &patient{ResponseWriter: c.Writer, c: c}
	http.ServeContent(w, c.Request, "", time.Time{}, o.File)
	if w.refused {
		h.Del("Content-Disposition")
		return web.Errorf(web.CodeRange, "the file has %d bytes", o.Bytes).About("Range")
	}
	return nil
}

// patient gives the client time for each write, not for all of a file together, and keeps a refusal back.
type patient struct {
	gin.ResponseWriter
	c       *gin.Context
	refused bool
}

func (w *patient) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *patient) Write(some []byte) (int, error) {
	if w.refused {
		return len(some), nil
	}
	web.AllowWrite(w.c)
	return w.ResponseWriter.Write(some)
}
