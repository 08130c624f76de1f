// Package telegram is the body of telegram-gateway: a bot whose chats send documents and texts, and see what becomes of them.
//
// An update makes a task, and the row of its reply, before Telegram is told that it came (the offset, or the webhook's 200). An
// update that comes twice, or late, has the same idempotency key and the same row. Replies are told by a loop of their own that
// compares rows with tasks, in whatever process it runs.
package telegram

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/telemetry"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/gateway"
	_ "github.com/millweir/millweir/pkg/wiring/kafka" // one of the two carries deliveries
	_ "github.com/millweir/millweir/pkg/wiring/redis"
)

// maxFile is the largest file that bots may download, in bytes.
const maxFile = 20 << 20

// Run serves until ctx ends.
func Run(ctx context.Context, env *process.Env, cfg *Config) error {
	p, err := documents.Open(ctx, env, cfg.Shared)
	if err != nil {
		return err
	}
	defer p.Close()
	app, err := gateway.New(p, cfg.Shared, cfg.Search, maxFile)
	if err != nil {
		return err
	}
	if !p.Database.WaitForSchema(ctx) {
		return nil
	}
	d, err := newDoor(ctx, p, app, cfg.Bot)
	if err != nil {
		return err
	}
	services, err := d.services(ctx, cfg.Bot)
	if err != nil {
		return err
	}
	return process.RunAll(ctx, append(app.Services(), services...)...)
}

// newDoor makes the bot over an application.
func newDoor(ctx context.Context, p *documents.Parts, app ingest.Service, cfg Bot) (*door, error) {
	users, err := cfg.chats()
	if err != nil {
		return nil, err
	}
	figs := newMetrics(p.Env.Metrics)
	api, err := newClient(cfg, figs)
	if err != nil {
		return nil, err
	}
	if len(users) == 0 {
		p.Env.Log.WarnContext(ctx, "telegram: no chat is served: TELEGRAM_CHATS is not set; write to the bot, and it tells the chat's id")
	}
	p.Env.Ready.Register("telegram", api.ready)
	r := newReplies(p.Store, api, p.Env.Log)
	telemetry.Register(p.Env.Metrics, newOpenCollector(r))
	return &door{app: app, api: api, users: users, replies: r, figs: figs, log: p.Env.Log, pause: firstPause}, nil
}

// services are what tells replies, and what takes updates.
func (d *door) services(ctx context.Context, cfg Bot) ([]process.Service, error) {
	services := []process.Service{process.Named("replies", d.replies)}
	if cfg.WebhookURL == "" {
		return append(services, process.Named("updates", process.ServiceFunc(d.poll))), nil
	}
	hook, err := newWebhook(ctx, d, cfg)
	if err != nil {
		return nil, err
	}
	return append(services, process.Named("webhook", hook)), nil
}

// again reports whether an update that failed so is to be handled again: the fault is ours, and may pass.
func again(err error) bool { return err != nil && !errors.As(err, new(*refusal)) }

// refusal is what a chat is told instead of a task.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// logged is an error as a log attribute.
func logged(err error) slog.Attr { return slog.Any("error", err) }

const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
)
