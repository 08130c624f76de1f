package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Heartbeat is the pause between two comments on an idle event stream (contract §4).
const Heartbeat = 15 * time.Second

// taskEvents streams a task's life (contract §4): the present state at once, every change, a comment every 15 s, the end.
//
// Last-Event-ID resumes after that transition. One that we cannot have sent is ignored: a browser repeats what it got,
// so an error would lock it out for good, and starting with the present state loses nobody anything but the past.
// A reconnect after the end answers 204, which tells an EventSource to stay away.
func (g *Handler) taskEvents(c *gin.Context, id string) error {
	if web.Stopped(g.Draining) {
		return &web.Error{Code: web.CodeStopping}
	}
	closeStream, err := g.Shares.Stream(web.Caller(c).Scope.UserID)
	if err != nil {
		return err
	}
	defer closeStream()
	if g.streams.Add(1) > g.Most {
		g.streams.Add(-1)
		return &web.Error{Code: web.CodeTooManyStreams}
	}
	g.Metrics.Streams.Inc()
	defer func() {
		g.streams.Add(-1)
		g.Metrics.Streams.Dec()
	}()
	web.RequestOf(c).Streaming = true
	ctx, who := c.Request.Context(), web.Caller(c)
	after := LastEventID(c.Request.Header.Get("Last-Event-ID"))
	if after > 0 {
		over, err := g.streamOver(c, id, after)
		if err != nil {
			return err
		}
		if over {
			return web.NoContent(c, nil)
		}
	}
	events, err := g.Svc.Watch(ctx, who, id, after)
	if err != nil {
		return err
	}
	return g.stream(c, events)
}

// streamOver reports whether the task has ended and the client has seen all of it.
func (g *Handler) streamOver(c *gin.Context, id string, after int64) (bool, error) {
	ctx, who := c.Request.Context(), web.Caller(c)
	t, err := g.Svc.Task(ctx, who, id)
	if err != nil || !t.Status.Terminal() {
		return false, err
	}
	log, err := g.Svc.Transitions(ctx, who, id, after-1, 2)
	return len(log) == 1 && log[0].ID == after, err
}

// LastEventID is the transition to go on after; 0 when the header is not one that we sent.
func LastEventID(header string) int64 {
	n, err := strconv.ParseInt(header, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != header {
		return 0
	}
	return n
}

// stream writes events until the task ends, the client goes or does not read, or the process stops.
// It holds one timer and one small buffer per client.
func (g *Handler) stream(c *gin.Context, events <-chan ingest.TaskEvent) error {
	h := c.Writer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w := &eventWriter{c: c, control: http.NewResponseController(c.Writer), out: c.Writer}
	c.Writer.WriteHeader(http.StatusOK)
	c.Writer.WriteHeaderNow()
	if err := w.flush(); err != nil {
		return err
	}
	beat := time.NewTimer(Heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case e, open := <-events:
			if !open {
				return nil
			}
			err = w.event(e)
		case <-beat.C:
			err = w.comment()
		case <-g.Draining:
			return nil
		case <-c.Request.Context().Done():
			return nil
		}
		if err != nil {
			return fmt.Errorf("write event: %w", err)
		}
		beat.Reset(Heartbeat)
	}
}

// eventWriter writes server-sent events with a deadline each.
type eventWriter struct {
	c       *gin.Context
	control *http.ResponseController
	out     interface{ Write([]byte) (int, error) }
	buf     bytes.Buffer
}

// event writes one state; JSON has no raw line ends, so one data line is enough.
func (w *eventWriter) event(e ingest.TaskEvent) error {
	body, err := json.Marshal(web.Veil(w.c, views.Task(e.Task)))
	if err != nil {
		return err
	}
	w.buf.Reset()
	if e.TransitionID > 0 {
		fmt.Fprintf(&w.buf, "id: %d\n", e.TransitionID)
	}
	w.buf.WriteString("event: status\ndata: ")
	w.buf.Write(body)
	w.buf.WriteString("\n\n")
	return w.send()
}

// comment is a sign of life that clients ignore.
func (w *eventWriter) comment() error {
	w.buf.Reset()
	w.buf.WriteString(": heartbeat\n\n")
	return w.send()
}

func (w *eventWriter) send() error {
	_ = w.control.SetWriteDeadline(time.Now().Add(web.WriteTimeout))
	if _, err := w.out.Write(w.buf.Bytes()); err != nil {
		return err
	}
	return w.flush()
}

func (w *eventWriter) flush() error {
	_ = w.control.SetWriteDeadline(time.Now().Add(web.WriteTimeout))
	return w.control.Flush()
}
