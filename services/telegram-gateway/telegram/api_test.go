package telegram

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testToken = "12345:secret-of-the-bot"

// botAPI is a Bot API on loopback.
type botAPI struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	arrived  chan struct{} // closed when there is an update
	updates  []map[string]any
	offset   int64 // the largest that was asked for
	doubled  bool  // each answer has every update twice, the last first
	files    map[string][]byte
	messages []*sent
	faults   map[string][]fault // by method, each for one call
	calls    map[string]int
	silent   time.Time // until then a message is a mistake
	early    int       // such mistakes
}

// sent is a message of the bot.
type sent struct {
	Chat, ID, ReplyTo int64
	Texts             []string // as sent, then as edited
}

// fault is what one call gets instead of its answer.
type fault struct {
	status int // 0: the connection is cut, of a file after half of it
	body   string
}

func newBotAPI(t testing.TB) *botAPI {
	b := &botAPI{t: t, arrived: make(chan struct{}), files: map[string][]byte{}, faults: map[string][]fault{}, calls: map[string]int{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

// config is a bot's that talks to it.
func (b *botAPI) config() Bot {
	var cfg Bot
	require.NoError(b.t, cfg.Token.UnmarshalText([]byte(testToken)))
	cfg.API, cfg.Chats, cfg.WebhookAddr = b.URL, "7=ada, -8=bob", "127.0.0.1:0"
	return cfg
}

// message adds an update with a message; more are its other fields.
func (b *botAPI) message(chat int64, id int, text string, more map[string]any) map[string]any {
	m := map[string]any{"message_id": id, "date": 1_700_000_000, "chat": map[string]any{"id": chat, "type": "private"}, "text": text}
	for k, v := range more {
		m[k] = v
	}
	return b.update(map[string]any{"message": m})
}

// update adds an update.
func (b *botAPI) update(u map[string]any) map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	u["update_id"] = int64(1000 + len(b.updates))
	b.updates = append(b.updates, u)
	close(b.arrived)
	b.arrived = make(chan struct{})
	return u
}

// fail makes the next calls of a method fail so.
func (b *botAPI) fail(method string, faults ...fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[method] = append(b.faults[method], faults...)
}

// with looks at what it holds.
func (b *botAPI) with(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// eventually waits for something to hold.
func (b *botAPI) eventually(what string, f func() bool) {
	b.t.Helper()
	require.Eventually(b.t, func() (ok bool) {
		b.with(func() { ok = f() })
		return ok
	}, 20*time.Second, 5*time.Millisecond, what)
}

// confirmed waits until Telegram need not send any of its updates again.
func (b *botAPI) confirmed() {
	b.t.Helper()
	b.eventually("all updates are confirmed", func() bool { return b.offset == int64(1000+len(b.updates)) })
}

// last are the last texts of the messages in a chat, in the order in which they were sent.
func (b *botAPI) last(chat int64) (texts []string) {
	b.with(func() {
		for _, m := range b.messages {
			if m.Chat == chat {
				texts = append(texts, m.Texts[len(m.Texts)-1])
			}
		}
	})
	return texts
}

// told waits for the last message in a chat to have a text.
func (b *botAPI) told(chat int64, part string) {
	b.t.Helper()
	b.eventually("chat is told "+part, func() bool {
		for _, m := range slices.Backward(b.messages) {
			if m.Chat == chat {
				return strings.Contains(m.Texts[len(m.Texts)-1], part)
			}
		}
		return false
	})
}

func (b *botAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, found := strings.CutPrefix(r.URL.Path, "/bot"+testToken+"/")
	if file, ok := strings.CutPrefix(r.URL.Path, "/file/bot"+testToken+"/"); ok {
		b.serveFile(w, file)
		return
	}
	if !found {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	form := map[string]string{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		for k, v := range body {
			form[k] = fmt.Sprint(v)
		}
		if n, ok := body["offset"].(float64); ok {
			form["offset"] = strconv.FormatInt(int64(n), 10)
		}
	} else if r.ParseMultipartForm(1<<20) == nil {
		for k, v := range r.MultipartForm.Value {
			form[k] = v[0]
		}
	}
	if b.broken(w, path) {
		return
	}
	result, wait := b.answer(path, form)
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
		result, _ = b.answer(path, form)
	}
	if text, refused := result.(string); refused {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{"ok": false, "error_code": http.StatusBadRequest, "description": "Bad Request: " + text})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"ok": true, "result": result})
}

// broken serves a fault.
func (b *botAPI) broken(w http.ResponseWriter, method string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[method]++
	if (method == "sendMessage" || method == "editMessageText") && time.Now().Before(b.silent) {
		b.early++
	}
	if len(b.faults[method]) == 0 {
		return false
	}
	f := b.faults[method][0]
	b.faults[method] = b.faults[method][1:]
	if f.status == 0 {
		panic(http.ErrAbortHandler)
	}
	if f.status == http.StatusTooManyRequests {
		b.silent = time.Now().Add(time.Second)
	}
	w.WriteHeader(f.status)
	_, _ = w.Write([]byte(f.body))
	return true
}

// answer is the result of a method; a text says why it is refused, a channel that there is none yet.
func (b *botAPI) answer(method string, form map[string]string) (result any, wait <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(form[name], 10, 64)
		return n
	}
	switch method {
	case "getUpdates":
		b.offset = max(b.offset, number("offset"))
		out := []map[string]any{}
		for _, u := range b.updates {
			if u["update_id"].(int64) >= number("offset") {
				out = append(out, u)
			}
		}
		if b.doubled {
			out = append(out, out...)
			slices.Reverse(out)
		}
		if len(out) == 0 {
			return out, b.arrived
		}
		return out, nil
	case "sendMessage":
		var to struct {
			ID int64 `json:"message_id"`
		}
		_ = json.Unmarshal([]byte(form["reply_parameters"]), &to)
		m := &sent{Chat: number("chat_id"), ID: int64(5000 + len(b.messages)), ReplyTo: to.ID, Texts: []string{form["text"]}}
		b.messages = append(b.messages, m)
		return map[string]any{"message_id": m.ID, "date": 1, "chat": map[string]any{"id": m.Chat}}, nil
	case "editMessageText":
		for _, m := range b.messages {
			if m.Chat == number("chat_id") && m.ID == number("message_id") {
				m.Texts = append(m.Texts, form["text"])
				return map[string]any{"message_id": m.ID, "date": 1, "chat": map[string]any{"id": m.Chat}}, nil
			}
		}
		return "message to edit not found", nil
	case "getFile":
		if _, there := b.files[form["file_id"]]; !there {
			return "file is too big", nil
		}
		return map[string]any{"file_id": form["file_id"], "file_path": "documents/" + form["file_id"]}, nil
	default:
		return true, nil
	}
}

func (b *botAPI) serveFile(w http.ResponseWriter, path string) {
	b.mu.Lock()
	data := b.files[strings.TrimPrefix(path, "documents/")]
	faults := b.faults["file"]
	if len(faults) > 0 {
		b.faults["file"] = faults[1:]
	}
	b.mu.Unlock()
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if len(faults) == 0 {
		_, _ = w.Write(data)
		return
	}
	if faults[0].status != 0 {
		w.WriteHeader(faults[0].status)
		return
	}
	_, _ = w.Write(data[:len(data)/2])
	panic(http.ErrAbortHandler)
}
