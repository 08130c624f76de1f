// Package telegramtest is a Bot API on loopback: the bot's updates, messages and files in memory. It never speaks to Telegram.
package telegramtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/pause"
)

// Token is the bot's; another one gets 401.
const Token = "12345:secret-of-the-bot"

const (
	firstUpdate  = 1000
	firstMessage = 5000
	pollTime     = 10 * time.Second      // then an answer has no update
	deliverAgain = 20 * time.Millisecond // Telegram waits longer
)

// Server is a Bot API. Its fields are read and set in With alone.
type Server struct {
	*httptest.Server

	Updates  []map[string]any
	Offset   int64 // of the first update that Telegram would send again
	Doubled  bool  // each answer has every update twice, the last first
	Files    map[string][]byte
	Messages []*Message
	Calls    map[string]int // by method
	Early    int            // messages that came while Telegram wanted to hear none (429)
	Hold     chan struct{}  // not nil: a message is there, and its answer comes when this is closed

	mu      sync.Mutex
	arrived chan struct{} // closed when there is an update, or a webhook
	faults  map[string][]Fault
	silent  time.Time // until then a message is early
	hook    struct{ url, secret string }
}

// Message is one of the bot's.
type Message struct {
	Chat, ID, ReplyTo int64
	Texts             []string // as sent, then as edited
}

// Last is its text.
func (m *Message) Last() string { return m.Texts[len(m.Texts)-1] }

// Fault is what one call gets instead of its answer.
type Fault struct {
	Status int // 0: the connection is cut, of a file after half of it
	Body   string
}

// refused is an answer of the Bot API that is none.
type refused struct {
	status int
	text   string
}

// NewServer starts one; Close it.
func NewServer() *Server {
	s := &Server{arrived: make(chan struct{}), Files: map[string][]byte{}, faults: map[string][]Fault{}, Calls: map[string]int{}, Offset: firstUpdate}
	s.Server = httptest.NewServer(s)
	return s
}

// With looks at what it holds, or changes it.
func (s *Server) With(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Message adds an update with a message; more are its other fields.
func (s *Server) Message(chat int64, id int, text string, more map[string]any) {
	m := map[string]any{"message_id": id, "date": 1_700_000_000, "chat": map[string]any{"id": chat, "type": "private"}, "text": text}
	for k, v := range more {
		m[k] = v
	}
	s.Update(map[string]any{"message": m})
}

// Document adds an update with a file.
func (s *Server) Document(chat int64, id int, name string, content []byte) {
	file := fmt.Sprintf("file-%d-%d", chat, id)
	s.With(func() { s.Files[file] = content })
	s.Message(chat, id, "", map[string]any{"document": map[string]any{"file_id": file, "file_name": name, "file_size": len(content)}})
}

// Update adds an update.
func (s *Server) Update(u map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u["update_id"] = s.next()
	s.Updates = append(s.Updates, u)
	s.wake()
}

// next is the id of the next update.
func (s *Server) next() int64 { return int64(firstUpdate + len(s.Updates)) }

// wake wakes who waits for an update.
func (s *Server) wake() {
	close(s.arrived)
	s.arrived = make(chan struct{})
}

// Confirmed reports whether Telegram need not send any of its updates again.
func (s *Server) Confirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Offset == s.next()
}

// Again makes Telegram send all its updates once more.
func (s *Server) Again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Offset = firstUpdate
	s.wake()
}

// Replies are the bot's messages in answer to a message, or to none (0).
func (s *Server) Replies(chat, id int64) (all []Message) {
	s.With(func() {
		for _, m := range s.Messages {
			if m.Chat == chat && m.ReplyTo == id {
				all = append(all, Message{m.Chat, m.ID, m.ReplyTo, slices.Clone(m.Texts)})
			}
		}
	})
	return all
}

// Fail makes the next calls of a method fail so; the method of downloads is "file".
func (s *Server) Fail(method string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[method] = append(s.faults[method], faults...)
}

// Deliver sends updates to the webhook that the bot has set, one after the other and each until it is taken, as Telegram does. The
// webhook listens on host, where in production something would end TLS. It returns when ctx ends.
func (s *Server) Deliver(ctx context.Context, host string) {
	for ctx.Err() == nil {
		var update map[string]any
		s.mu.Lock()
		arrived, hook := s.arrived, s.hook
		if i := s.Offset - firstUpdate; hook.url != "" && i < int64(len(s.Updates)) {
			update = s.Updates[i]
		}
		s.mu.Unlock()
		if update == nil {
			select {
			case <-arrived:
			case <-ctx.Done():
			}
			continue
		}
		if !s.post(ctx, host, hook.url, hook.secret, update) {
			pause.For(ctx, deliverAgain)
			continue
		}
		s.With(func() { s.Offset = max(s.Offset, update["update_id"].(int64)+1) })
	}
}

// post sends an update; false: it is to be sent again.
func (s *Server) post(ctx context.Context, host, hook, secret string, update map[string]any) bool {
	_, path, _ := strings.Cut(strings.TrimPrefix(hook, "https://"), "/")
	body, err := json.Marshal(update)
	if err != nil {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/"+path, strings.NewReader(string(body)))
	if err != nil {
		return false
	}
	req.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	res, err := s.Client().Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if file, ok := strings.CutPrefix(r.URL.Path, "/file/bot"+Token+"/documents/"); ok {
		s.serveFile(w, file)
		return
	}
	method, found := strings.CutPrefix(r.URL.Path, "/bot"+Token+"/")
	if !found {
		write(w, http.StatusUnauthorized, map[string]any{"ok": false, "error_code": http.StatusUnauthorized, "description": "Unauthorized"})
		return
	}
	form := read(r)
	if s.broken(w, method) {
		return
	}
	result, wait := s.answer(method, form)
	if wait != nil {
		select {
		case <-wait:
		case <-time.After(pollTime):
		case <-r.Context().Done():
			return
		}
		result, _ = s.answer(method, form)
	}
	if method == "sendMessage" {
		s.mu.Lock()
		hold := s.Hold
		s.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
	}
	if no, is := result.(refused); is {
		write(w, no.status, map[string]any{"ok": false, "error_code": no.status, "description": no.text})
		return
	}
	write(w, http.StatusOK, map[string]any{"ok": true, "result": result})
}

func write(w http.ResponseWriter, status int, answer map[string]any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the caller may be gone
}

// read are the parameters of a call.
func read(r *http.Request) map[string]string {
	form := map[string]string{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		var body map[string]json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body)
		for k, v := range body {
			form[k] = strings.Trim(string(v), `"`)
		}
	} else if r.ParseMultipartForm(1<<20) == nil {
		for k, v := range r.MultipartForm.Value {
			form[k] = v[0]
		}
	}
	return form
}

// broken serves a fault.
func (s *Server) broken(w http.ResponseWriter, method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Calls[method]++
	if (method == "sendMessage" || method == "editMessageText") && time.Now().Before(s.silent) {
		s.Early++
	}
	if len(s.faults[method]) == 0 {
		return false
	}
	f := s.faults[method][0]
	s.faults[method] = s.faults[method][1:]
	if f.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	if f.Status == http.StatusTooManyRequests {
		s.silent = time.Now().Add(time.Second)
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write([]byte(f.Body)) // the caller may be gone
	return true
}

// answer is the result of a method; a channel says that there is none yet.
func (s *Server) answer(method string, form map[string]string) (result any, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(form[name], 10, 64)
		return n
	}
	shown := func(m *Message) any {
		return map[string]any{"message_id": m.ID, "date": 1, "chat": map[string]any{"id": m.Chat}}
	}
	switch method {
	case "getUpdates":
		return s.updates(number("offset"))
	case "setWebhook", "deleteWebhook":
		s.hook.url, s.hook.secret = form["url"], form["secret_token"]
		s.wake()
		return true, nil
	case "sendMessage":
		var to struct {
			ID int64 `json:"message_id"`
		}
		_ = json.Unmarshal([]byte(form["reply_parameters"]), &to)
		m := &Message{Chat: number("chat_id"), ID: int64(firstMessage + len(s.Messages)), ReplyTo: to.ID, Texts: []string{form["text"]}}
		s.Messages = append(s.Messages, m)
		return shown(m), nil
	case "editMessageText":
		for _, m := range s.Messages {
			switch {
			case m.Chat != number("chat_id") || m.ID != number("message_id"):
			case m.Last() == form["text"]:
				return refused{http.StatusBadRequest, "Bad Request: message is not modified: specified new message content and reply markup " +
					"are exactly the same as a current content and reply markup of the message"}, nil
			default:
				m.Texts = append(m.Texts, form["text"])
				return shown(m), nil
			}
		}
		return refused{http.StatusBadRequest, "Bad Request: message to edit not found"}, nil
	case "getFile":
		if _, there := s.Files[form["file_id"]]; !there {
			return refused{http.StatusBadRequest, "Bad Request: file is too big"}, nil
		}
		return map[string]any{"file_id": form["file_id"], "file_path": "documents/" + form["file_id"]}, nil
	default:
		return true, nil
	}
}

// updates are those from an offset on.
func (s *Server) updates(offset int64) (result any, wait <-chan struct{}) {
	if s.hook.url != "" {
		return refused{http.StatusConflict, "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"}, nil
	}
	s.Offset = max(s.Offset, offset)
	out := []map[string]any{}
	for _, u := range s.Updates {
		if u["update_id"].(int64) >= max(s.Offset, offset) {
			out = append(out, u)
		}
	}
	if s.Doubled {
		out = append(out, out...)
		slices.Reverse(out)
	}
	if len(out) == 0 {
		return out, s.arrived
	}
	return out, nil
}

func (s *Server) serveFile(w http.ResponseWriter, file string) {
	s.mu.Lock()
	data := s.Files[file]
	faults := s.faults["file"]
	if len(faults) > 0 {
		s.faults["file"] = faults[1:]
	}
	s.mu.Unlock()
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	switch {
	case len(faults) == 0:
		_, _ = w.Write(data) // the caller may be gone
	case faults[0].Status != 0:
		w.WriteHeader(faults[0].Status)
	default:
		_, _ = w.Write(data[:len(data)/2]) // it is cut off here
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}
