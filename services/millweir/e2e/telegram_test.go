package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/telegramtest"
)

// What a chat sends to the bot is acknowledged with its task, is found, and the same message says so in the end: by long polling and by
// a webhook. A message that Telegram sends again makes nothing new.
func TestTelegram(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		database func(*testing.T) string
		env      []string
	}{
		"long polling on Postgres": {func(t *testing.T) string { return "DATABASE_URL=" + labserver.PostgresDatabase(t) }, nil},
		"webhook on MariaDB": {
			func(t *testing.T) string { return "MYSQL_DSN=" + labserver.MySQLDatabase(t) },
			[]string{"TELEGRAM_WEBHOOK_URL=https://bot.example/hook", "TELEGRAM_WEBHOOK_ADDR=127.0.0.1:0", "TELEGRAM_WEBHOOK_SECRET=hush"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := of.database(t)
			migrate(t, database)
			api := telegramtest.NewServer()
			t.Cleanup(api.Close)
			env := []string{
				database, "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads"),
			}
			c := fleet(t, env, 1)
			bot := start(t, "telegram-gateway", append(append([]string{
				"TELEGRAM_BOT_TOKEN=" + telegramtest.Token, "TELEGRAM_API_URL=" + api.URL, "TELEGRAM_CHATS=7=local",
			}, env...), of.env...))
			if of.env != nil {
				deliver(t, api, bot.printed(`"telegram: listening".*?"addr":"([^"]+)"`))
			}
			const text, file = "A note on the weir at noon.", "# The sluice\n\nIts gate is opened at dusk."
			api.Message(7, 1, text, nil)
			api.Document(7, 2, "sluice.md", []byte(file))
			done := func() bool {
				return strings.Contains(toldOf(t, api, 1), "Done") && strings.Contains(toldOf(t, api, 2), "Done")
			}
			eventually(t, "both ends are told", done)
			require.Regexp(t, `^sluice\.md\nTask [0-9a-f-]{36}\nDone: it can be searched\.$`, toldOf(t, api, 2))
			for query, want := range map[string]string{"weir at noon": text, "opened at dusk": "Its gate is opened at dusk."} {
				hits := c.search(query, "", 3)
				require.NotEmpty(t, hits, query)
				require.Contains(t, hits[0].Text, want)
			}
			api.Message(7, 3, "/search opened at dusk", nil)
			eventually(t, "the chat finds it", func() bool { return strings.Contains(toldOf(t, api, 3), "opened at dusk") })

			before := len(taskIDs(t, c))
			require.Equal(t, 3, before, "a workflow with its document, and a file")
			api.Message(7, 1, text, nil)
			api.Document(7, 2, "sluice.md", []byte(file))
			eventually(t, "all was sent again", api.Confirmed)
			require.Len(t, taskIDs(t, c), before)
			api.Message(7, 4, "/help", nil) // behind what came again
			eventually(t, "the bot goes on", func() bool { return toldOf(t, api, 4) != "" })
			require.True(t, done())
		})
	}
}

// deliver plays Telegram's side of a webhook until the test ends.
func deliver(t *testing.T, api *telegramtest.Server, addr string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { api.Deliver(ctx, addr) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// toldOf is the text of the one message in answer to a message; "" while there is none.
func toldOf(t *testing.T, api *telegramtest.Server, message int64) string {
	t.Helper()
	all := api.Replies(7, message)
	if len(all) == 0 {
		return ""
	}
	require.Len(t, all, 1, "messages in answer to message %d", message)
	return all[0].Last()
}

// taskIDs are all tasks.
func taskIDs(t *testing.T, c *client) (ids []string) {
	t.Helper()
	var p page[task]
	c.get(tasks+"?limit=100").into(t, 200, &p)
	for _, v := range p.Items {
		ids = append(ids, v.TaskID)
	}
	return ids
}
