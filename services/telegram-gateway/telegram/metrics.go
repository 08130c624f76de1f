package telegram

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
)

// metrics are the bot's figures (contract §8).
type metrics struct {
	updates *prometheus.CounterVec
	lag     prometheus.Histogram
	calls   *prometheus.CounterVec
}

// The results of an update.
const (
	updateDone      = "done"
	updateRefused   = "refused"
	updateNotServed = "not_served"
	updateFailed    = "failed" // each time: it is handled again
)

// The results of a call.
const (
	callOK        = "ok"
	callThrottled = "throttled" // 429
	callRefused   = "refused"   // 400, 403: of this message or file alone
	callFailed    = "failed"
)

// The methods of the Bot API that are called.
const (
	getUpdates      = "getUpdates"
	setWebhook      = "setWebhook"
	deleteWebhook   = "deleteWebhook"
	getFile         = "getFile"
	downloadFile    = "download" // of a file; not a method by its name
	sendMessage     = "sendMessage"
	editMessageText = "editMessageText"
)

// newMetrics registers the figures.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		updates: telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "telegram_updates_total",
			Help: "Messages that were handled, by kind (text, file, command, other) and result; each try that failed counts, for it is handled again.",
		}, []string{"kind", "result"})),
		lag: telemetry.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "telegram_update_lag_seconds", Help: "Time from a message's date, whole seconds of Telegram's clock, until it was handled: its task is committed.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600},
		})),
		calls: telemetry.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "telegram_api_calls_total", Help: "Calls of the Bot API, and downloads of files, by method and result: ok, throttled (429), refused (400, 403), failed.",
		}, []string{"method", "result"})),
	}
	for _, kind := range []string{"text", "file", "command", "other"} {
		for _, result := range []string{updateDone, updateRefused, updateNotServed, updateFailed} {
			m.updates.WithLabelValues(kind, result)
		}
	}
	for _, method := range []string{getUpdates, setWebhook, deleteWebhook, getFile, downloadFile, sendMessage, editMessageText} {
		for _, result := range []string{callOK, callThrottled, callRefused, callFailed} {
			m.calls.WithLabelValues(method, result)
		}
	}
	return m
}

// handled counts an update.
func (m *metrics) handled(u *models.Message, result string) {
	kind := "other"
	switch {
	case strings.HasPrefix(strings.TrimSpace(u.Text), "/"):
		kind = "command"
	case u.Document != nil:
		kind = "file"
	case strings.TrimSpace(u.Text) != "":
		kind = "text"
	}
	m.updates.WithLabelValues(kind, result).Inc()
	if result != updateFailed {
		m.lag.Observe(max(0, time.Since(time.Unix(int64(u.Date), 0)).Seconds()))
	}
}

// called counts a call. One that our own end has cut off is none.
func (m *metrics) called(method string, err error) {
	var many *bot.TooManyRequestsError
	result := callFailed
	switch {
	case errors.Is(err, context.Canceled):
		return
	case err == nil:
		result = callOK
	case errors.As(err, &many):
		result = callThrottled
	case gone(err):
		result = callRefused
	}
	m.calls.WithLabelValues(method, result).Inc()
}

const (
	scrapeTime = 2 * time.Second // bounds what one scrape may ask of the database
	openKept   = 2 * time.Second // how old the figures of open replies may be
)

// open are the replies that wait.
type open struct {
	replies int64
	oldest  time.Duration // of those of which nothing was sent
}

// openCollector asks for open replies when it is scraped, and not more often than every so often.
type openCollector struct {
	asked           *telemetry.Asked[open]
	log             *slog.Logger
	replies, oldest *prometheus.Desc
}

// newOpenCollector shows the open replies of all processes: the table is theirs together.
func newOpenCollector(r *replies) prometheus.Collector {
	return openCollector{
		asked: &telemetry.Asked[open]{Ask: r.open, Now: time.Now, Wait: scrapeTime, Keep: openKept}, log: r.log,
		replies: prometheus.NewDesc("telegram_replies_open", "Messages whose task has not ended, or whose chat was not told its end.", nil, nil),
		oldest:  prometheus.NewDesc("telegram_oldest_unanswered_seconds", "Age of the oldest message that became a task and has no answer in its chat; 0: there is none.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c openCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.replies
	ch <- c.oldest
}

// Collect implements prometheus.Collector; while the database does not answer there are no figures.
func (c openCollector) Collect(ch chan<- prometheus.Metric) {
	open, err := c.asked.Get()
	if err != nil {
		c.log.Debug("telegram: open replies", logged(err))
		return
	}
	ch <- prometheus.MustNewConstMetric(c.replies, prometheus.GaugeValue, float64(open.replies))
	ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, open.oldest.Seconds())
}

// open counts the open replies.
func (r *replies) open(ctx context.Context) (out open, err error) {
	err = r.db.Read(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		var oldest, now taskstate.DBTime
		err := tx.QueryRowContext(ctx, r.q.Get("CountOpen")).Scan(&out.replies, &oldest, &now)
		if !oldest.IsZero() {
			out.oldest = now.Sub(oldest.Time)
		}
		return err
	})
	return out, err
}
