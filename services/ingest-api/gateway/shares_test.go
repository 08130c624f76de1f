package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// holding is a body that has sent its first bytes, which have been counted, and sends the rest when it is told to.
func holding(t *testing.T, b *bench, who, first, rest string) (ended <-chan *httptest.ResponseRecorder, finish func()) {
	t.Helper()
	body, w := io.Pipe()
	out := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		rec := httptest.NewRecorder()
		b.g.ServeHTTP(rec, b.request(who, http.MethodPost, asyncPath, body, "Content-Type", "multipart/form-data; boundary=b"))
		_ = body.Close()
		out <- rec
	}()
	_, _ = io.WriteString(w, first) // returns when it was read, or when the request has ended
	_, _ = w.Write(nil)             // is taken by the next read, so after the bytes of the last one were counted
	return out, func() {
		_, _ = io.WriteString(w, rest)
		_ = w.Close()
	}
}

const (
	openForm  = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n"
	closeForm = "\r\n--b--\r\n"
)

// One user's open uploads are bounded in number, and in bytes; another user does not notice.
func TestOpenUploadsOfOneUser(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config, _ *Deps) { c.UploadMaxOpenPerUser = 2 })
	first, finish1 := holding(t, b, ada, openForm+"one", closeForm)
	second, finish2 := holding(t, b, ada, openForm+"two", closeForm)
	w := b.upload(ada, asyncPath, nil, file("a.txt", "three"))
	p := b.refused(w, http.StatusTooManyRequests, web.CodeUserUploads)
	require.Contains(t, p.Message, "2 uploads")
	require.Contains(t, p.Message, "UPLOAD_MAX_OPEN_PER_USER")
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	b.accept(bob, "a.txt", "of another")
	finish1()
	require.Equal(t, http.StatusAccepted, (<-first).Code)
	b.accept(ada, "a.txt", "three")
	finish2()
	require.Equal(t, http.StatusAccepted, (<-second).Code)
	require.Zero(t, b.g.shares.Users(), "nothing is kept of who has nothing open")
	require.Zero(t, b.held())
}

func TestBytesInFlightOfOneUser(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config, _ *Deps) {
		c.UploadMaxBytesPerUser, c.UploadMaxBytes, c.UploadMaxRequestBytes = 1, 1<<20, 1<<20 // so one whole request: 2 MiB with its form
	})
	big := strings.Repeat("x", 1<<20-1000)
	first, finish := holding(t, b, ada, openForm+"1"+big, closeForm)
	b.accept(ada, "a.txt", big)
	second, finish2 := holding(t, b, ada, openForm+"2"+big, closeForm)
	p := b.refused(b.upload(ada, asyncPath, nil, file("a.txt", big)), http.StatusTooManyRequests, web.CodeUserUploads)
	require.Contains(t, p.Message, "UPLOAD_MAX_BYTES_PER_USER")
	b.accept(bob, "a.txt", big)
	finish()
	finish2()
	require.Equal(t, http.StatusAccepted, (<-first).Code)
	require.Equal(t, http.StatusAccepted, (<-second).Code)
	b.accept(ada, "b.txt", "3"+big)
	require.Zero(t, b.g.shares.Users())
	require.Zero(t, b.held(), "the refused file was dropped")
}

func TestEventStreamsOfOneUser(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config, _ *Deps) { c.EventsMaxPerUser = 1 })
	mine, his := b.accept(ada, "a.txt", "x").TaskID, b.accept(bob, "a.txt", "y").TaskID
	ctx, leave := context.WithCancel(t.Context())
	path := func(id string) string { return "/api/knowledge/tasks/" + id + "/events" }
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.g.ServeHTTP(httptest.NewRecorder(), b.request(ada, http.MethodGet, path(mine), nil).WithContext(ctx))
	}()
	require.Eventually(t, func() bool { return b.streams() == 1 }, time.Minute, time.Millisecond)
	w := b.get(ada, path(mine))
	b.refused(w, http.StatusTooManyRequests, web.CodeUserStreams)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	look := func(who, id string) int {
		ctx, gone := context.WithCancel(t.Context())
		w := leaving{httptest.NewRecorder(), gone}
		b.g.ServeHTTP(w, b.request(who, http.MethodGet, path(id), nil).WithContext(ctx))
		return w.Code
	}
	require.Equal(t, http.StatusOK, look(bob, his))
	leave()
	<-done
	require.Equal(t, http.StatusOK, look(ada, mine))
	require.Zero(t, b.g.shares.Users())
}

// leaving is a client that goes with the first bytes.
type leaving struct {
	*httptest.ResponseRecorder
	leave func()
}

func (l leaving) Write(p []byte) (int, error) {
	defer l.leave()
	return l.ResponseRecorder.Write(p)
}

// What stands twice is refused, not guessed at.
func TestFieldsGivenTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, name := range []string{"title", "knowledgeBase", "force"} {
		w := b.upload(ada, asyncPath, nil, part{name, "", "true"}, part{name, "", "true"}, file("a.txt", "x"))
		require.Equal(t, name, b.refused(w, http.StatusBadRequest, web.CodeInvalidParameter).Parameter)
	}
	require.Zero(t, b.held())
	for body, name := range map[string]string{
		`{"query":"a","query":"b"}`: "query", `{"query":"a","Query":"b"}`: "Query", `{"topK":1,"query":"a","topK":2}`: "topK",
		`{"query":"a","\u0071uery":"b"}`: "query", `{"query":"a","x":[{"y":1,"z":{},"y":[]}]}`: "y",
	} {
		p := b.refused(b.send(ada, http.MethodPost, "/api/knowledge/search", body), http.StatusBadRequest, web.CodeBadJSON)
		require.Equal(t, name, p.Parameter, body)
		require.Contains(t, p.Message, "more than once", body)
	}
	for _, body := range []string{`{"a":{"b":1},"c":{"b":1}}`, `[{"a":1},{"a":1}]`, `{"a":["a","a"],"b":"a"}`, `{"a":"b","b":"a"}`, `{`, ``, `]`} {
		_, twice := web.KeyTwice([]byte(body))
		require.False(t, twice, body)
	}
}
