package gateway

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/ingest-api/gateway/tasks"
	"github.com/millweir/millweir/services/ingest-api/gateway/uploads"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

func FuzzCursor(f *testing.F) {
	for _, c := range []web.Cursor{{List: "tasks:-updatedAt", At: 1767322800000000, ID: "0190a6e0-0000-7000-8000-000000000001"}, {List: "segments", At: -1}, {List: "x", ID: "a|b"}} {
		f.Add(c.Encode(), c.List)
	}
	f.Add("", "tasks")
	f.Add("MXx0YXNrc3wxfA", "tasks")
	f.Add("MXx0YXNrczotdXBkYXR\rlZEF0fDE3NjczMjI4MDAwMDAwMDB8MDE5MGE2ZTAtMDAwMC03MDAwLTgwMDAtMDAwMDAwMDAwMDAxfDJhNHA1NQ", "tasks:-updatedAt") // found by fuzzing
	f.Fuzz(func(t *testing.T, text, list string) {
		c, err := web.DecodeCursor(text, list)
		if err != nil {
			require.Equal(t, web.CodeBadCursor, web.Classify(err).Code)
			return
		}
		require.Equal(t, text, c.Encode(), "two texts for one cursor")
		require.Equal(t, list, c.List)
		require.True(t, web.HarmlessID(c.ID))
	})
}

func FuzzLastEventID(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "-1", "+1", "01", "9223372036854775807", "9223372036854775808", "1 ", "x", "１"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := tasks.LastEventID(text)
		require.GreaterOrEqual(t, n, int64(0))
		if n > 0 {
			require.Equal(t, text, strconv.FormatInt(n, 10))
		}
	})
}

func FuzzMultipart(f *testing.F) {
	whole, _ := form(f, file("a.txt", "hello"), part{field: "title", body: "T"})
	f.Add(whole.Bytes())
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../x\"\r\n\r\nx\r\n--b--\r\n"))
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=file; filename*=UTF-8''%ff%00\r\n\r\nx\r\n--b--\r\n"))
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"title\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=FF\r\n--b--"))
	f.Add([]byte("--b--"))
	f.Add([]byte("--b\n\n--b\n\n--b--"))
	shared := newBench(f) // one for all: reading the description takes longer than a request
	f.Fuzz(func(t *testing.T, body []byte) {
		b := *shared
		b.t = t
		r := b.request(ada, http.MethodPost, asyncPath, bytes.NewReader(body), "Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		b.g.ServeHTTP(w, r)
		require.Zero(t, b.held(), "a received file was left")
		require.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body.String())
		checkAnswer(t, b.g.api, http.MethodPost, asyncPath, w)
	})
}

func FuzzFileName(f *testing.F) {
	for _, seed := range []string{"a.txt", "../../x", `..\x`, "\x00", "\u202E", "..", "a/.", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		name := uploads.CleanFileName(given)
		require.NotEmpty(t, name)
		require.True(t, utf8.ValidString(name))
		require.LessOrEqual(t, utf8.RuneCountInString(name), uploads.MaxFileName)
		require.NotContains(t, name, "/")
		require.NotContains(t, name, `\`)
		require.NotContains(t, name, "\x00")
		require.NotContains(t, []string{".", ".."}, name)
	})
}
