package telegram

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/sqlite" // not a separate service's
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	"github.com/millweir/millweir/pkg/telegramtest"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/gateway"
	"github.com/millweir/millweir/pkg/workflow"
)

// databases are all that there can be.
var databases = map[string]func(t testing.TB) database.Settings{
	"sqlite": func(t testing.TB) database.Settings {
		return database.Settings{DatabaseURL: process.NewDSN(taskstoretest.SQLite(t))}
	},
	"mariadb": func(t testing.TB) database.Settings {
		return database.Settings{MySQLDSN: process.NewDSN(labserver.MySQLDatabase(t))}
	},
	"postgres": func(t testing.TB) database.Settings {
		return database.Settings{DatabaseURL: process.NewDSN(labserver.PostgresDatabase(t))}
	},
}

// site is an application with a bot. Only workers are missing: tasks stay as people, and finish, leave them.
type site struct {
	*botAPI
	parts *documents.Parts
	app   *gateway.Application
	stop  func()
}

func newSite(t testing.TB, in func(t testing.TB) database.Settings) *site {
	t.Helper()
	shared, _ := process.Load[documents.Shared]() // the defaults; what it complains of is set below
	url, stop, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(stop)
	dir := t.TempDir()
	shared.Store, shared.Queue.RedisURL, shared.Vectors.Kind, shared.Embedding = in(t), process.NewDSN(url), "embedded", documents.Embedding{}
	shared.Uploads.Dir, shared.Vectors.Dir = filepath.Join(dir, "uploads"), filepath.Join(dir, "vectors")
	env := &process.Env{Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady()}
	s := &site{botAPI: newBotAPI(t)}
	s.parts, err = documents.Open(context.Background(), env, shared)
	require.NoError(t, err)
	t.Cleanup(s.parts.Close)
	_, err = s.parts.Store.Migrate(t.Context())
	require.NoError(t, err)
	s.app, err = gateway.New(s.parts, shared, gateway.Search{}, maxFile)
	require.NoError(t, err)
	return s
}

// start runs the bot until the test, or stop, ends it.
func (s *site) start(cfg Bot) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d, err := newDoor(ctx, s.parts, s.app, cfg)
	require.NoError(s.t, err)
	d.pause, d.replies.tick = time.Millisecond, 10*time.Millisecond
	services, err := d.services(ctx, cfg)
	require.NoError(s.t, err)
	done := make(chan error, 1)
	go func() { done <- process.RunAll(ctx, append(s.app.Services(), services...)...) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-done)
	})
	s.t.Cleanup(s.stop)
}

// tasks are the tasks of a user, oldest first.
func (s *site) tasks(user string) []taskstate.Task {
	s.t.Helper()
	page, err := s.parts.Store.List(context.Background(), taskstate.Scope{UserID: user, Role: taskstate.RoleUser}, taskstate.Query{Limit: 100, Sort: taskstate.SortCreated})
	require.NoError(s.t, err)
	return page.Tasks
}

// finish plays a worker: it claims a task and ends it, a workflow's with what the workflow does.
func (s *site) finish(id string, cause string) {
	s.t.Helper()
	var result taskrun.Result
	policy := taskstate.Policy{Lease: time.Minute, MaxCrashes: 9, Slack: time.Second}
	holder := taskstate.Holder{Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}}
	for _, end := range []bool{false, true} {
		out, err := s.parts.Store.Apply(context.Background(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(
			func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				holder.Token = taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}
				switch {
				case !end:
					return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "w/1", Process: "w", Actor: holder.Actor})
				case cause != "":
					return taskstate.Fail(policy, m, t, holder, taskstate.Failure{Cause: cause, Permanent: true})
				}
				return taskstate.Succeed(m, t, holder, result.Output, "")
			})})
		require.NoError(s.t, err)
		require.NotNil(s.t, out[0].Change)
		if row := out[0].After; !end && row.Type == workflow.Type && cause == "" {
			result = workflow.Handler{Workflows: s.app.Workflows}.Handle(context.Background(), taskrun.Job{Task: row, Report: func(taskstate.Progress) {}})
			require.NoError(s.t, result.Err)
		}
	}
}

// documents are the tasks of a user's documents, oldest first.
func (s *site) documents(user string) []taskstate.Task {
	s.t.Helper()
	return slices.DeleteFunc(s.tasks(user), func(t taskstate.Task) bool { return t.Type != ingest.TypeDocument })
}

// takeIn plays a worker for the workflows of a user.
func (s *site) takeIn(user string) {
	s.t.Helper()
	for _, t := range s.tasks(user) {
		if t.Type == workflow.Type && !t.Status.Terminal() {
			s.finish(t.ID, "")
		}
	}
}

// allTold waits until the end of every message's task was told.
func (s *site) allTold() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var open int
		require.NoError(s.t, s.parts.Store.Reader().QueryRowContext(context.Background(), "SELECT COUNT(*) FROM telegram_reply WHERE told = 0").Scan(&open))
		return open == 0
	}, waitLimit, 5*time.Millisecond, "every end is told")
}

// document is a message's file.
func document(id, name string, size int) map[string]any {
	return map[string]any{"text": "", "document": map[string]any{"file_id": id, "file_name": name, "file_size": size}}
}

// Texts and files become tasks once, however often and in whatever order their updates come, and the chats see the ends.
func TestMessagesBecomeTasks(t *testing.T) {
	t.Parallel()
	for name, in := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, in)
			s.Doubled = true
			s.Files["f1"] = []byte("# The file\n\nIts text.")
			s.Message(7, 1, "A note.\nSecond line.", nil)
			s.Message(7, 2, "", document("f1", "plan.md", 21))
			s.Message(-8, 1, "A note.\nSecond line.", nil) // another user's: another document
			s.Update(map[string]any{"edited_message": map[string]any{"message_id": 1}})
			s.start(s.config())
			s.confirmed()
			require.Len(t, s.tasks("ada"), 2)
			require.Len(t, s.tasks("bob"), 1)
			s.eventually("three replies", func() bool { return len(s.Messages) == 3 })
			s.takeIn("ada")
			tasks := s.documents("ada")
			require.Len(t, tasks, 2)
			titles := map[string]bool{}
			for _, task := range s.tasks("ada") {
				require.Equal(t, []string{"telegram", "7"}, []string{task.Channel, task.ChatID})
			}
			for _, task := range tasks {
				doc, err := s.app.Document(t.Context(), ingest.Caller{Scope: taskstate.System()}, task.DocumentID)
				require.NoError(t, err)
				titles[doc.Title+" "+doc.FileName] = true
			}
			require.Equal(t, map[string]bool{"A note. telegram-1700000000-1.txt": true, "plan.md plan.md": true}, titles)
			s.finish(tasks[0].ID, "")
			s.finish(tasks[1].ID, "no such thing")
			s.eventually("two ends", func() bool {
				var done, failed int
				for _, m := range s.Messages {
					text := m.Last()
					if strings.Contains(text, "Done: it can be searched.") && strings.Contains(text, tasks[0].ID) {
						done++
					}
					if strings.Contains(text, "Failed: no such thing") && strings.Contains(text, tasks[1].ID) {
						failed++
					}
				}
				return done == 1 && failed == 1
			})
			s.stop()
			// Started anew it is sent everything again, as by a Telegram that heard no offset: nothing is made or told twice.
			s.Again()
			s.start(s.config())
			s.confirmed()
			require.Len(t, s.tasks("ada"), 3)
			require.Len(t, s.tasks("bob"), 1)
			s.takeIn("bob")
			s.told(-8, s.documents("bob")[0].ID+"\nWaits.")
			s.finish(s.documents("bob")[0].ID, "")
			s.told(-8, "Done")
			s.With(func() {
				require.Len(t, s.Messages, 3)
				for _, m := range s.Messages {
					require.NotZero(t, m.ReplyTo)
				}
			})
		})
	}
}

// While the database cannot commit, and when it loses the row of a reply, the offset stays; then the message is a task once.
func TestTheOffsetMovesAfterTheCommit(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"COMMIT", "telegram_reply"} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, databases["sqlite"])
			var away atomic.Bool
			var met atomic.Int32
			away.Store(true)
			s.parts.Store.Database.Watch = func(query string, done bool) error {
				if away.Load() && !done && strings.Contains(query, broken) && !strings.HasPrefix(query, "SELECT") {
					met.Add(1)
					return errors.Join(driver.ErrBadConn, errors.New("the database is away"))
				}
				return nil
			}
			s.Message(7, 1, "A note.", nil)
			s.start(s.config())
			require.Eventually(t, func() bool { return met.Load() > 0 }, waitLimit, time.Millisecond)
			require.False(t, s.Confirmed())
			s.With(func() { require.Empty(t, s.Messages) })
			away.Store(false)
			s.confirmed()
			require.Len(t, s.tasks("ada"), 1)
			s.told(7, "Waits.")
			s.With(func() { require.Len(t, s.Messages, 1) })
		})
	}
}

// What Telegram breaks is tried again: files, replies, the updates themselves; a pause that it asks for is kept.
func TestTelegramIsBroken(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	s.Fail("getUpdates", fault{Status: 502, Body: "<html>"}, fault{}, fault{Status: 409, Body: `{"ok":false,"error_code":409,"description":"Conflict"}`})
	s.Fail("file", fault{}, fault{Status: 503, Body: ""})
	s.Fail("getFile", fault{Status: 500, Body: `{"ok":false,"error_code":500,"description":"Internal"}`})
	s.Fail("sendMessage", fault{}, fault{Status: 429, Body: `{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":1}}`})
	text := strings.Repeat("words of a file ", 1000)
	s.Files["f1"] = []byte(text)
	s.Message(7, 1, "", document("f1", "long.txt", len(text)))
	s.start(s.config())
	s.confirmed()
	tasks := s.tasks("ada")
	require.Len(t, tasks, 1)
	require.Contains(t, string(tasks[0].Payload), fmt.Sprintf(`"bytes":%d`, len(text)))
	s.told(7, "long.txt\nTask "+tasks[0].ID+"\nWaits.")
	s.With(func() {
		require.Len(t, s.Messages, 1)
		require.Zero(t, s.Early, "messages in a pause that Telegram asked for")
	})

	s.Fail("file", make([]fault, downloadTries)...)
	s.Message(7, 2, "", document("f1", "never.txt", len(text)))
	s.confirmed()
	s.told(7, "Telegram did not give me never.txt, in 5 tries")
	require.Len(t, s.tasks("ada"), 1)
}

// What cannot be taken is refused with the reason, and the bot goes on.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	s.Files["picture"], s.Files["empty"], s.Files["large"] = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), nil, make([]byte, maxFile+1)
	s.Files["plain"] = []byte("It says no language.")
	schema := ingest.MetadataSchema{Fields: map[string]ingest.MetadataField{"lang": {Type: ingest.MetadataString, Required: true}}}
	ada := ingest.Caller{Scope: taskstate.Scope{UserID: "ada", Role: taskstate.RoleUser}, Channel: channel}
	_, err := s.app.CreateBase(t.Context(), ada, ingest.DefaultBase, ingest.BaseSettings{MetadataSchema: &schema})
	require.NoError(t, err)
	s.start(s.config())
	for i, c := range []struct {
		text string
		more map[string]any
		want string
	}{
		{"", map[string]any{"sticker": map[string]any{"file_id": "x"}}, "I take texts, and files that are sent as documents."},
		{"", document("picture", "p.png", 16), "p.png was not taken"},
		{"", document("empty", "e.txt", 0), "e.txt was not taken"},
		{"", document("large", "l.txt", maxFile+1), "l.txt has 20971521 bytes; bots may download at most 20971520"},
		{"", document("large", "l.txt", 5), "l.txt was not taken: more than 20971520 bytes"},
		{"", document("plain", "p.txt", 20), "p.txt was not taken: metadata.lang is missing; the knowledge base's metadata schema asks for a string"},
		{"", document("nowhere", "n.txt", 5), "Telegram does not give me this file"},
		{"/nonsense now", nil, "I do not know /nonsense."},
		{"/cancel", nil, "/cancel needs the id of a task."},
		{"/cancel ' OR 1=1 --", nil, "You have no task ' OR 1=1 --."},
		{"/status 01900000-0000-7000-8000-000000000000", nil, "You have no task 01900000"},
		{"/status", nil, "You have no tasks."},
		{"/search", nil, "/search needs words"},
		{"/search anything", nil, "Nothing found."},
		{"/help@some_bot", nil, "/search WORDS"},
		{"/start", nil, "/search WORDS"},
	} {
		s.Message(7, i+1, c.text, c.more)
		s.told(7, c.want)
	}
	s.Message(99, 1, "Let me in", nil)
	s.told(99, "This chat is not served. Its id is 99: whoever runs Millweir adds it to TELEGRAM_CHATS, as 99=user.")
	s.confirmed()
	require.Empty(t, s.tasks("ada"))
	for _, text := range append(s.last(7), s.last(99)...) {
		require.NotContains(t, text, telegramtest.Token)
	}
}

// People see and end their own tasks, and nobody's else.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	s.start(s.config())
	s.Message(7, 1, "A note about weirs.", nil)
	s.told(7, "Waits.")
	id := s.tasks("ada")[0].ID
	s.Message(-8, 1, "/status "+id, nil)
	s.told(-8, "You have no task")
	s.Message(-8, 2, "/cancel "+id, nil)
	s.told(-8, "You have no task")
	s.Message(7, 2, "/status "+strings.ToUpper(id), nil)
	s.told(7, "Task "+id+"\nWaits.")
	s.Message(7, 3, "/cancel "+id, nil)
	s.eventually("the command and the reply say so", func() bool {
		n := 0
		for _, m := range s.Messages {
			if m.Chat == 7 && strings.Contains(m.Last(), "Cancelled.") {
				n++
			}
		}
		return n == 2
	})
	s.Message(7, 4, "/cancel "+id, nil)
	s.told(7, "cannot be cancelled")
	s.Message(7, 5, "Another.", nil)
	s.confirmed()
	s.takeIn("ada")
	s.Message(7, 6, "/status", nil)
	s.told(7, "Taken in; the task of its document goes on.")
}

// Two processes tell each message once, and a message that was deleted, or a chat that is closed, holds nothing up.
func TestReplies(t *testing.T) {
	t.Parallel()
	for name, in := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, in)
			const n = 12
			for i := range n {
				s.Message(7, i+1, fmt.Sprint("note ", i), nil)
			}
			s.start(s.config())
			s.confirmed()
			s.stop()
			s.With(func() { s.Messages = nil }) // as if none had been told
			_, err := s.parts.Store.DB().ExecContext(t.Context(), "UPDATE telegram_reply SET reply_id = 0, shown = ''")
			require.NoError(t, err)
			waiting, err := newReplies(s.parts.Store, nil, nil).open(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, n, waiting.replies)
			require.Positive(t, waiting.oldest)
			api, err := newClient(s.config(), newMetrics(nil))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 2 {
				r := newReplies(s.parts.Store, api, slog.New(slog.DiscardHandler))
				r.tick = time.Millisecond
				wg.Go(func() { _ = r.Run(ctx) })
			}
			s.eventually("each is told", func() bool { return len(s.Messages) >= n })
			s.With(func() { s.Messages[0].Chat = 0 }) // its message is deleted
			s.takeIn("ada")
			for _, task := range s.documents("ada") {
				s.finish(task.ID, "")
			}
			s.eventually("each end is told", func() bool {
				done := 0
				for _, m := range s.Messages {
					if m.Chat == 7 && strings.Contains(m.Last(), "Done") {
						done++
					}
				}
				return done == n
			})
			cancel()
			wg.Wait()
			s.With(func() { require.Len(t, s.Messages, n+1) })

			s.Fail("sendMessage", fault{Status: 403, Body: `{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}`})
			s.start(s.config())
			s.Message(7, 100, "blocked", nil)
			s.confirmed()
			s.takeIn("ada")
			s.finish(s.documents("ada")[n].ID, "")
			s.allTold()
		})
	}
}

// The figures say what came of updates and calls, and what waits.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	s.Fail("getUpdates", fault{Status: 502, Body: "<html>"})
	s.Fail("sendMessage", fault{Status: 429, Body: `{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":1}}`})
	s.start(s.config())
	s.Message(99, 1, "Let me in.", nil) // throttled, and handled again
	s.confirmed()
	s.With(func() { s.Files["f1"] = []byte("Its text.") })
	s.Fail("file", fault{}) // cut after half of it
	s.Message(7, 1, "A note.", nil)
	s.Message(7, 2, "", document("f1", "plan.md", 9))
	s.Message(7, 3, "/status", nil)
	s.Message(7, 4, "", map[string]any{"sticker": map[string]any{"file_id": "x"}})
	s.Message(7, 5, "", document("f2", "gone.md", 9))
	s.confirmed()
	for series, want := range map[string]float64{
		"telegram_updates_total text done": 1, "telegram_updates_total file done": 1, "telegram_updates_total command done": 1,
		"telegram_updates_total other refused": 1, "telegram_updates_total file refused": 1,
		"telegram_updates_total text not_served": 1, "telegram_updates_total text failed": 1, "telegram_updates_total file failed": 0,
		"telegram_update_lag_seconds":                6,
		"telegram_api_calls_total getUpdates failed": 1, "telegram_api_calls_total deleteWebhook ok": 1,
		"telegram_api_calls_total sendMessage throttled": 1, "telegram_api_calls_total sendMessage failed": 0,
		"telegram_api_calls_total getFile ok": 2, "telegram_api_calls_total getFile refused": 1, "telegram_api_calls_total download ok": 1, "telegram_api_calls_total download failed": 1,
		"telegram_replies_open": 2, "telegram_oldest_unanswered_seconds": 0,
	} {
		require.Eventually(t, func() bool { return s.figures()[series] == want }, waitLimit, 20*time.Millisecond, "%s is %v", series, want)
	}
}

// figures are all that the bot's metrics say, by name and values of labels; of a histogram the number of observations.
func (s *site) figures() map[string]float64 {
	s.t.Helper()
	families, err := s.parts.Env.Metrics.Gather()
	require.NoError(s.t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// What a crash or a lost answer leaves behind a last edit: the message shows the end, and the row does not say so. Telegram refuses the
// same edit, and nothing is told twice.
func TestALastEditThatIsNotWrittenDown(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	s.Message(7, 1, "A note.", nil)
	s.start(s.config())
	s.told(7, "Waits.")
	s.takeIn("ada")
	s.finish(s.documents("ada")[0].ID, "")
	s.told(7, "Done")
	s.allTold()
	s.stop()
	_, err := s.parts.Store.DB().ExecContext(t.Context(), "UPDATE telegram_reply SET told = 0, shown = ''")
	require.NoError(t, err)
	s.start(s.config())
	s.allTold()
	require.Len(t, s.last(7), 1)
}

// A bot that is stopped while a message is on its way hears the answer and writes it down: the next one does not send it again.
func TestAStopWaitsForWhatIsBeingSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	hold, stopped := make(chan struct{}), make(chan struct{})
	s.With(func() { s.Hold = hold })
	s.Message(7, 1, "A note.", nil)
	s.start(s.config())
	s.eventually("it is sent", func() bool { return len(s.Messages) == 1 })
	go func() {
		defer close(stopped)
		s.stop()
	}()
	select {
	case <-stopped: // it has not waited
	case <-time.After(300 * time.Millisecond):
	}
	s.With(func() { s.Hold = nil })
	close(hold)
	<-stopped
	s.start(s.config())
	s.takeIn("ada")
	s.finish(s.documents("ada")[0].ID, "")
	s.allTold()
	s.With(func() { require.Len(t, s.Messages, 1) })
}

// A Bot API that is not at TELEGRAM_API_URL is no closed chat: the reply waits for it.
func TestAWrongAddressLosesNoReply(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	s.Fail("sendMessage", fault{Status: 404, Body: `{"ok":false,"error_code":404,"description":"Not Found"}`})
	s.Message(7, 1, "A note.", nil)
	s.start(s.config())
	s.told(7, "Waits.")
}

// A webhook takes what has the secret, and says when an update is to be sent again.
func TestWebhook(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	var away atomic.Bool
	s.parts.Store.Database.Watch = func(query string, done bool) error { // set before anything reads
		if away.Load() && !done && query == "COMMIT" {
			return driver.ErrBadConn
		}
		return nil
	}
	cfg := s.config()
	cfg.WebhookURL = "https://bot.example/hook"
	require.NoError(t, cfg.WebhookSecret.UnmarshalText([]byte("the_secret-1")))
	s.start(cfg)
	s.eventually("it is set", func() bool { return s.Calls["setWebhook"] == 1 })
	api, err := newClient(cfg, newMetrics(nil))
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	d := &door{app: s.app, api: api, users: map[int64]string{7: "ada"}, replies: newReplies(s.parts.Store, api, log), figs: newMetrics(nil), log: log}
	hook := &webhook{door: d, cfg: cfg}
	const update = `{"update_id":1,"message":{"message_id":1,"date":1700000000,"chat":{"id":7},"text":"A note."}}`
	post := func(method, path, secret, body string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if secret != "" {
			r.Header.Set(secretField, secret)
		}
		w := httptest.NewRecorder()
		hook.ServeHTTP(w, r)
		require.NotContains(t, w.Body.String(), "the_secret-1")
		return w.Code
	}
	for _, secret := range []string{"", "the_secret-", "the_secret-12"} {
		require.Equal(t, http.StatusUnauthorized, post(http.MethodPost, "/hook", secret, update), secret)
	}
	require.Equal(t, http.StatusNotFound, post(http.MethodPost, "/", "the_secret-1", update))
	require.Equal(t, http.StatusMethodNotAllowed, post(http.MethodGet, "/hook", "the_secret-1", ""))
	require.Equal(t, http.StatusBadRequest, post(http.MethodPost, "/hook", "the_secret-1", `{"update_id":`))
	require.Equal(t, http.StatusRequestEntityTooLarge, post(http.MethodPost, "/hook", "the_secret-1", `"`+strings.Repeat("x", maxUpdate)))
	require.Equal(t, http.StatusOK, post(http.MethodPost, "/hook", "the_secret-1", `{"update_id":9}`))
	require.Empty(t, s.tasks("ada"))
	away.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, post(http.MethodPost, "/hook", "the_secret-1", update))
	away.Store(false)
	for range 2 {
		require.Equal(t, http.StatusOK, post(http.MethodPost, "/hook", "the_secret-1", update))
	}
	require.Len(t, s.tasks("ada"), 1)
	s.told(7, "Waits.")
}

// A token that Telegram does not know is a process that is not ready, not one that hears nothing.
func TestAWrongTokenIsNotReady(t *testing.T) {
	t.Parallel()
	s := newSite(t, databases["sqlite"])
	cfg := s.config()
	require.NoError(t, cfg.Token.UnmarshalText([]byte("12345:another")))
	d, err := newDoor(t.Context(), s.parts, s.app, cfg)
	require.NoError(t, err)
	require.NoError(t, d.api.ready(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.poll(ctx) }()
	require.Eventually(t, func() bool { return d.api.ready(t.Context()) != nil }, waitLimit, time.Millisecond)
	cancel()
	<-done
	require.NotContains(t, fmt.Sprint(d.api.ready(t.Context())), "another")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	good := func() (b Bot) {
		require.NoError(t, b.Token.UnmarshalText([]byte(telegramtest.Token)))
		require.NoError(t, b.WebhookSecret.UnmarshalText([]byte("s")))
		b.API, b.Chats, b.WebhookURL = "https://api.telegram.org", "1=anna,-100=team", "https://bot.example/hook"
		return b
	}
	require.NoError(t, good().validate())
	for want, change := range map[string]func(*Bot){
		"TELEGRAM_BOT_TOKEN: is not set":                  func(b *Bot) { b.Token = process.Secret{} },
		"TELEGRAM_API_URL: is not an http":                func(b *Bot) { b.API = "api.telegram.org" },
		`TELEGRAM_CHATS: "anna" is not chat=user`:         func(b *Bot) { b.Chats = "anna" },
		`TELEGRAM_CHATS: "x=anna" is not chat=user`:       func(b *Bot) { b.Chats = "x=anna" },
		"TELEGRAM_CHATS: user of chat 1":                  func(b *Bot) { b.Chats = "1=" },
		"TELEGRAM_CHATS: chat 1 stands twice":             func(b *Bot) { b.Chats = "1=anna,1=bob" },
		"TELEGRAM_WEBHOOK_URL: is not an https URL":       func(b *Bot) { b.WebhookURL = "http://bot.example" },
		"TELEGRAM_WEBHOOK_SECRET: needs 1 to 256 of A-Z,": func(b *Bot) { b.WebhookSecret = process.Secret{} },
	} {
		b := good()
		change(&b)
		require.ErrorContains(t, b.validate(), want)
		require.NotContains(t, b.validate().Error(), telegramtest.Token)
	}
}
