package telegram

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/telegramtest"
)

// botAPI is a Bot API on loopback, and what a test waits for there.
type botAPI struct {
	*telegramtest.Server
	t testing.TB
}

type fault = telegramtest.Fault

func newBotAPI(t testing.TB) *botAPI {
	b := &botAPI{Server: telegramtest.NewServer(), t: t}
	t.Cleanup(b.Close)
	return b
}

// config is a bot's that talks to it.
func (b *botAPI) config() Bot {
	var cfg Bot
	require.NoError(b.t, cfg.Token.UnmarshalText([]byte(telegramtest.Token)))
	cfg.API, cfg.Chats, cfg.WebhookAddr = b.URL, "7=ada, -8=bob", "127.0.0.1:0"
	return cfg
}

// waitLimit is for what must happen on a loaded machine; no test waits for it in full when it passes.
const waitLimit = 2 * time.Minute

// eventually waits for something to hold.
func (b *botAPI) eventually(what string, f func() bool) {
	b.t.Helper()
	require.Eventually(b.t, func() (ok bool) {
		b.With(func() { ok = f() })
		return ok
	}, waitLimit, 5*time.Millisecond, what)
}

// confirmed waits until Telegram need not send any of its updates again.
func (b *botAPI) confirmed() {
	b.t.Helper()
	require.Eventually(b.t, b.Confirmed, waitLimit, 5*time.Millisecond, "all updates are confirmed")
}

// last are the last texts of the messages in a chat, in the order in which they were sent.
func (b *botAPI) last(chat int64) (texts []string) {
	b.With(func() {
		for _, m := range b.Messages {
			if m.Chat == chat {
				texts = append(texts, m.Last())
			}
		}
	})
	return texts
}

// told waits for the last message in a chat to have a text.
func (b *botAPI) told(chat int64, part string) {
	b.t.Helper()
	b.eventually("chat is told "+part, func() bool {
		for _, m := range slices.Backward(b.Messages) {
			if m.Chat == chat {
				return strings.Contains(m.Last(), part)
			}
		}
		return false
	})
}
