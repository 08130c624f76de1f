package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
)

const (
	pollTime     = 25 * time.Second // how long Telegram may wait for an update before it returns none
	callTime     = 15 * time.Second
	downloadTime = 5 * time.Minute
	maxAnswer    = 16 << 20 // bytes of 100 updates
)

// client is the Bot API. The library has its methods and types; its own poller confirms updates before they are handled, so
// getUpdates is ours.
type client struct {
	*bot.Bot
	base string // URL of the bot's methods, with the token
	http *http.Client
	figs *metrics

	mu     sync.Mutex
	failed error     // of the last call
	silent time.Time // until then Telegram wants to hear nothing (429)
}

func newClient(cfg Bot, figs *metrics) (*client, error) {
	c := &client{figs: figs, base: cfg.API + "/bot" + cfg.Token.Reveal() + "/", http: &http.Client{}}
	var err error
	c.Bot, err = bot.New(cfg.Token.Reveal(), bot.WithServerURL(cfg.API), bot.WithSkipGetMe(), bot.WithHTTPClient(pollTime, c.http),
		bot.WithErrorsHandler(func(error) {})) // each call returns its own
	return c, err
}

// updates are those from an offset on; it waits for the first.
func (c *client) updates(ctx context.Context, offset int64) ([]models.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTime+callTime)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"offset": offset, "timeout": int(pollTime.Seconds()), "limit": 100, "allowed_updates": allowedUpdates,
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"getUpdates", bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("getUpdates: bad TELEGRAM_API_URL") // the error would have the token
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.note(getUpdates, fmt.Errorf("getUpdates: %w", hidden(err)))
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		OK          bool            `json:"ok"`
		Result      []models.Update `json:"result"`
		Description string          `json:"description"`
		Parameters  struct {
			RetryAfter int `json:"retry_after"`
		} `json:"parameters"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, c.note(getUpdates, fmt.Errorf("getUpdates: status %d: %w", res.StatusCode, err))
	}
	switch {
	case answer.OK:
		return answer.Result, c.note(getUpdates, nil)
	case answer.Parameters.RetryAfter > 0:
		return nil, c.note(getUpdates, &bot.TooManyRequestsError{Message: answer.Description, RetryAfter: answer.Parameters.RetryAfter})
	default:
		return nil, c.note(getUpdates, fmt.Errorf("getUpdates: %d %s", res.StatusCode, answer.Description))
	}
}

// allowedUpdates are what the bot wants to hear of.
var allowedUpdates = []string{"message"}

// file opens a file that was sent to the bot; who reads it notes how the download ends. A refusal when Telegram does not give it.
func (c *client) file(ctx context.Context, id string) (io.ReadCloser, error) {
	short, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	f, err := c.GetFile(short, &bot.GetFileParams{FileID: id})
	if errors.Is(c.note(getFile, err), bot.ErrorBadRequest) {
		return nil, &refusal{"Telegram does not give me this file: " + err.Error()}
	} else if err != nil {
		return nil, hidden(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.FileDownloadLink(f), nil)
	if err != nil {
		return nil, errors.New("download: bad file path")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.note(downloadFile, fmt.Errorf("download: %w", hidden(err)))
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, c.note(downloadFile, fmt.Errorf("download: status %d", res.StatusCode))
	}
	return res.Body, nil
}

// say sends a message and returns its id; replyTo 0: to none.
func (c *client) say(ctx context.Context, chat int64, replyTo int, text string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	p := &bot.SendMessageParams{ChatID: chat, Text: text}
	if replyTo != 0 {
		p.ReplyParameters = &models.ReplyParameters{MessageID: replyTo, AllowSendingWithoutReply: true}
	}
	m, err := c.SendMessage(ctx, p)
	if c.note(sendMessage, err) != nil {
		return 0, hidden(err)
	}
	return m.ID, nil
}

// edit changes a message; one that shows the text already is as it should be.
func (c *client) edit(ctx context.Context, chat int64, id int, text string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := c.EditMessageText(ctx, &bot.EditMessageTextParams{ChatID: chat, MessageID: id, Text: text})
	if errors.Is(err, bot.ErrorBadRequest) && strings.Contains(err.Error(), "message is not modified") { // the API has no code for it
		err = nil
	}
	return hidden(c.note(editMessageText, err))
}

// note counts a call and remembers how it ended, for the readiness and for the next call; it returns err.
func (c *client) note(method string, err error) error {
	c.figs.called(method, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = nil
	var many *bot.TooManyRequestsError
	switch {
	case errors.As(err, &many):
		c.silent = time.Now().Add(time.Duration(many.RetryAfter) * time.Second)
	case errors.Is(err, bot.ErrorBadRequest), errors.Is(err, bot.ErrorForbidden), errors.Is(err, context.Canceled): // of this message alone
	default:
		c.failed = err
	}
	return err
}

// quiet is how long Telegram wants to hear nothing.
func (c *client) quiet() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.silent)
}

// ready is the readiness: how the last call ended.
func (c *client) ready(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return hidden(c.failed)
}

// hidden is err without the URL, which has the token.
func hidden(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
