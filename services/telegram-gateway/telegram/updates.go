package telegram

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
)

// chatsAtOnce is how many chats' updates are handled side by side.
const chatsAtOnce = 8

// poll asks for updates until ctx ends. The offset moves when all updates of a turn have been handled.
func (d *door) poll(ctx context.Context) error {
	if !d.until(ctx, deleteWebhook, func(ctx context.Context) error { // else Telegram refuses getUpdates
		_, err := d.api.DeleteWebhook(ctx, &bot.DeleteWebhookParams{})
		return d.api.note(deleteWebhook, err)
	}) {
		return nil
	}
	waits := pause.Backoff{First: d.pause, Most: mostPause}
	for offset := int64(0); ctx.Err() == nil; {
		updates, err := d.api.updates(ctx, offset)
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "telegram: no updates", logged(err))
			pause.For(ctx, max(waits.Next(), d.api.quiet()))
			continue
		}
		waits.Reset()
		crash.Point("telegram.after_updates")
		if !d.handleAll(ctx, updates) {
			break
		}
		crash.Point("telegram.before_offset")
		for _, u := range updates {
			offset = max(offset, u.ID+1)
		}
	}
	return nil
}

// handleAll handles updates, those of one chat in their order, until all are done; false: ctx has ended.
func (d *door) handleAll(ctx context.Context, updates []models.Update) bool {
	chats := map[int64][]models.Update{}
	for _, u := range updates {
		if u.Message != nil {
			chats[u.Message.Chat.ID] = append(chats[u.Message.Chat.ID], u)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, chatsAtOnce)
	for _, own := range chats {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, u := range own {
				d.until(ctx, "update", func(ctx context.Context) error { return d.handle(ctx, u) })
			}
		})
	}
	wg.Wait()
	return ctx.Err() == nil
}

// until does something until it succeeds; false: ctx has ended.
func (d *door) until(ctx context.Context, what string, f func(ctx context.Context) error) bool {
	waits := pause.Backoff{First: d.pause, Most: mostPause}
	for ctx.Err() == nil {
		err := f(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			d.log.WarnContext(ctx, "telegram: tried again", slog.String("what", what), logged(hidden(err)))
		}
		pause.For(ctx, max(waits.Next(), d.api.quiet()))
	}
	return false
}

// webhook takes updates that Telegram sends. What it answers with 200 has been handled.
type webhook struct {
	door     *door
	cfg      Bot
	listener net.Listener
}

const (
	maxUpdate   = 1 << 20 // bytes
	handleTime  = 50 * time.Second
	stopTime    = 20 * time.Second
	headerTime  = 10 * time.Second
	readTime    = 30 * time.Second
	secretField = "X-Telegram-Bot-Api-Secret-Token" //nolint:gosec // a header's name
)

// newWebhook opens the address.
func newWebhook(ctx context.Context, d *door, cfg Bot) (*webhook, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.WebhookAddr)
	if err != nil {
		return nil, fmt.Errorf("listen on TELEGRAM_WEBHOOK_ADDR %s: %w", cfg.WebhookAddr, err)
	}
	d.log.InfoContext(ctx, "telegram: listening", slog.String("addr", listener.Addr().String()))
	return &webhook{door: d, cfg: cfg, listener: listener}, nil
}

// Run tells Telegram where updates go, and takes them until ctx ends.
func (w *webhook) Run(ctx context.Context) error {
	server := &http.Server{
		Handler: w, ReadHeaderTimeout: headerTime, ReadTimeout: readTime,
		ErrorLog: slog.NewLogLogger(w.door.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(w.listener) }()
	w.door.until(ctx, setWebhook, func(ctx context.Context) error {
		_, err := w.door.api.SetWebhook(ctx, &bot.SetWebhookParams{
			URL: w.cfg.WebhookURL, SecretToken: w.cfg.WebhookSecret.Reveal(), AllowedUpdates: allowedUpdates,
		})
		return w.door.api.note(setWebhook, err)
	})
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", w.listener.Addr(), err)
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if server.Shutdown(graceful) != nil {
		_ = server.Close() // what is cut off is sent again
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP takes one update: 401 for another's, 400 for what is none, 503 for what is to be sent again.
func (w *webhook) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	given := []byte(r.Header.Get(secretField))
	if at, err := url.Parse(w.cfg.WebhookURL); err != nil || r.URL.Path != cmpPath(at.Path) {
		http.NotFound(out, r)
		return
	}
	if subtle.ConstantTimeCompare(given, []byte(w.cfg.WebhookSecret.Reveal())) != 1 {
		http.Error(out, "the header "+secretField+" is not the secret of this webhook", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodPost {
		http.Error(out, "POST an update", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, maxUpdate))
	if err != nil {
		http.Error(out, fmt.Sprintf("an update has at most %d bytes", maxUpdate), http.StatusRequestEntityTooLarge)
		return
	}
	var u models.Update
	if err := json.Unmarshal(body, &u); err != nil {
		http.Error(out, "not an update: "+err.Error(), http.StatusBadRequest)
		return
	}
	crash.Point("telegram.after_receipt")
	ctx, cancel := context.WithTimeout(r.Context(), handleTime)
	defer cancel()
	if err := w.door.handle(ctx, u); err != nil {
		w.door.log.WarnContext(ctx, "telegram: an update is to be sent again", logged(err))
		http.Error(out, "send it again", http.StatusServiceUnavailable)
		return
	}
	crash.Point("telegram.before_ok")
}

// cmpPath is a URL's path as a request has it.
func cmpPath(path string) string {
	if path == "" {
		return "/"
	}
	return path
}
