package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
)

// ordersQueue is the topic orders beside the all-in-one's own queue: of its six messages four are finished, one is dead, and one
// is pending with a consumer that is gone.
func ordersQueue(t *testing.T) (uuids []string) {
	t.Helper()
	options, err := rueidis.ParseURL(strings.TrimSuffix(os.Getenv("REDIS_URL"), "?embedded=true"))
	require.NoError(t, err)
	options.DisableCache, options.ForceSingleClient = true, true
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	mq, err := streammq.New(client, streammq.NewDefaultConfig())
	require.NoError(t, err)
	_, err = mq.CreateTopic(t.Context(), streammq.Topic{Name: "orders", Partitions: 1, Status: true})
	require.NoError(t, err)
	publish := func(payload string) {
		r, err := mq.NewProducer(nil).Publish(t.Context(), "orders", streammq.Message{Key: "k", Payload: []byte(payload)})
		require.NoError(t, err)
		uuids = append(uuids, r.UUID)
	}
	for i := range 4 {
		publish(fmt.Sprint("good ", i))
	}
	publish("bad \x1b[31m")
	done := make(chan struct{}, 5)
	cfg := streammq.NewDefaultSubscriberConfig("orders", "workers", func(_ context.Context, d *streammq.Delivery) streammq.Result {
		defer func() { done <- struct{}{} }()
		if strings.HasPrefix(string(d.Payload), "bad") {
			return streammq.DeadLetter(errors.New("no use"))
		}
		return streammq.Success()
	})
	s, err := mq.NewSubscriber(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for range 5 {
		<-done
	}
	stop()
	require.NoError(t, <-ended)
	publish("in hand")
	read := client.B().Arbitrary("XREADGROUP", "GROUP", "workers", "ghost", "COUNT", "1", "STREAMS", "stream:topic:orders:p:0", ">").Build()
	require.NoError(t, client.Do(t.Context(), read).Error())
	return uuids
}

// TestAnOperatorsDayAtTheQueue looks at a real topic, replays its dead letter and clears it away.
// Not parallel: it sets variables.
func TestAnOperatorsDayAtTheQueue(t *testing.T) {
	b := &bundle{env: map[string]string{"MILLWEIR_SERVER": allInOne(t, nil)}}
	run := b.must(t)
	uuids := ordersQueue(t)

	require.Contains(t, run(cli.ExitOK, "mq", "topics"), "orders  1           single  true")
	require.Contains(t, run(cli.ExitOK, "mq", "partitions", "orders"), "6 entries, 0 retries wait, 0 malformed retries, 1 dead letters\n")
	run(cli.ExitOK, "mq", "groups", "orders", "-o", "json")
	require.EqualValues(t, 1, decoded[[]wire.Group](t, b)[0].Pending)
	require.Contains(t, run(cli.ExitOK, "mq", "lag", "orders", "workers"), "1 pending\n")
	require.Contains(t, run(cli.ExitOK, "mq", "owners", "orders", "workers"), "1 partitions without an owner")
	require.Contains(t, run(cli.ExitOK, "mq", "pending", "orders", "workers"), "ghost")
	require.NotContains(t, run(cli.ExitOK, "mq", "pending", "orders", "workers", "--min-idle", "1h"), "ghost")
	require.Contains(t, run(cli.ExitOK, "mq", "inflight", "orders", "workers"), "ghost")
	recent := run(cli.ExitOK, "mq", "recent", "orders", "--limit", "3", "-o", "jsonl")
	require.Equal(t, 3, strings.Count(recent, "\n"))
	require.Contains(t, run(cli.ExitOK, "mq", "recent", "orders", "--partition", "0"), "good 0")
	require.Contains(t, run(cli.ExitOK, "mq", "status", uuids[0], uuids[4]), "completed")
	run(cli.ExitBadInput, "mq", "status", "no-uuid")
	run(cli.ExitBadInput, "mq", "recent", "orders", "--partition", "9")
	require.Contains(t, b.err.String(), "INVALID_PARAMETER")
	run(cli.ExitNotFound, "mq", "lag", "orders", "nobody")
	require.Contains(t, b.err.String(), "GROUP_NOT_FOUND")
	run(cli.ExitNotFound, "mq", "partitions", "../../../../etc/passwd")

	run(cli.ExitOK, "dlq", "list", "--topic", "orders", "-o", "json")
	dead := decoded[[]wire.TopicDeadLetter](t, b)
	require.Len(t, dead, 1)
	id := dead[0].ID
	require.Contains(t, run(cli.ExitOK, "dlq", "get", id, "--topic", "orders"), `no use`)
	require.Contains(t, b.out.String(), `bad \x1b[31m`, "a message's text does not drive the terminal")
	require.Contains(t, run(cli.ExitOK, "dlq", "replay", "--all", "--topic", "orders", "--group", "none", "--yes"), "0 replayed\n")
	require.Contains(t, run(cli.ExitOK, "dlq", "replay", id, "--topic", "orders"), "no use")
	run(cli.ExitBadInput, "dlq", "replay", id, "--topic", "orders")
	require.Contains(t, b.err.String(), "LETTER_REPLAYED")
	require.NotContains(t, run(cli.ExitOK, "dlq", "list", "--topic", "orders", "--unreplayed", "true"), id)
	require.Contains(t, run(cli.ExitOK, "dlq", "drop", id, "--topic", "orders", "--yes"), id)
	run(cli.ExitNotFound, "dlq", "get", id, "--topic", "orders")
	run(cli.ExitNotFound, "dlq", "list", "--topic", "none")

	require.Contains(t, run(cli.ExitOK, "mq", "trim", "orders", "--finished", "--dry-run"), "5 entries would be removed")
	require.Contains(t, run(cli.ExitOK, "mq", "trim", "orders", "--finished", "--yes"), "5 entries removed")
	run(cli.ExitBadInput, "mq", "reset", "orders", "workers", "--to", "middle", "--yes")
	require.Contains(t, run(cli.ExitOK, "mq", "reset", "orders", "workers", "--to", "end", "--yes"), "reset; 1 pending entries given up")
	require.Contains(t, run(cli.ExitOK, "mq", "delete", "orders", "workers", "--yes"), "deleted group workers of orders\n")
	require.Contains(t, run(cli.ExitOK, "mq", "delete", "orders", "--yes", "-o", "json"), `"deleted": "orders with all that it holds"`)
	run(cli.ExitNotFound, "mq", "delete", "orders", "--yes")
}

// TestKeysAtTheCommandLine gives each person a key and lets them try what is not theirs.
// Not parallel: it sets variables.
func TestKeysAtTheCommandLine(t *testing.T) {
	b := &bundle{env: map[string]string{"MILLWEIR_SERVER": allInOne(t, map[string]string{
		"AUTH_MODE": "keys", "UPLOAD_RATE_LIMIT": "2", "AUTH_FAIL_LIMIT": "3",
	})}}
	run := b.must(t)
	as := func(key string) { b.env["MILLWEIR_API_KEY"] = key }
	file := write(t, "a.txt", "amber is fossil resin")
	newKey := func(args ...string) string {
		return strings.TrimSpace(run(cli.ExitOK, append([]string{"keys", "create"}, args...)...))
	}
	anna, reader, root := newKey("--user", "anna"), newKey("--user", "anna", "--scopes", "read"), newKey("--user", "root", "--role", "operator")
	run(cli.ExitBadInput, "keys", "create", "--user", "")
	run(cli.ExitBadInput, "keys", "create", "--user", "x", "--scopes", "everything")
	require.Contains(t, run(cli.ExitOK, "keys", "list"), "anna")
	require.NotContains(t, b.out.String(), anna, "a key is shown once")

	run(cli.ExitAuth, "tasks", "list")
	require.Contains(t, b.err.String(), "UNAUTHENTICATED")
	as(reader)
	run(cli.ExitOK, "tasks", "list")
	run(cli.ExitAuth, "submit", file)
	require.Contains(t, b.err.String(), "INSUFFICIENT_SCOPE")
	as(anna)
	run(cli.ExitOK, "submit", file, "--wait", "-o", "json")
	task := decoded[[]struct{ Task wire.AcceptedTask }](t, b)[0].Task
	require.Equal(t, "cli", task.Channel, "the task says where it came from")
	require.Contains(t, run(cli.ExitOK, "search", "fossil"), "amber")
	for _, forbidden := range [][]string{{"dlq", "list"}, {"outbox", "stats"}, {"mq", "topics"}, {"mq", "delete", "t", "--yes"}} {
		run(cli.ExitAuth, forbidden...)
		require.Contains(t, b.err.String(), "FORBIDDEN", forbidden)
	}
	run(cli.ExitOK, "submit", file, "--force")
	run(cli.ExitRateLimited, "submit", file, "--force", "--timeout", "5s")
	require.Contains(t, b.err.String(), "RATE_LIMITED")
	as(newKey("--user", "bert"))
	run(cli.ExitNotFound, "tasks", "get", task.TaskID)
	run(cli.ExitNotFound, "tasks", "cancel", task.TaskID, "--yes")
	run(cli.ExitNotFound, "search", "fossil")
	require.Contains(t, b.err.String(), "KNOWLEDGE_BASE_NOT_FOUND", "who has sent nothing has no base yet")
	as(root)
	require.Contains(t, run(cli.ExitOK, "outbox", "stats"), "NEW")

	run(cli.ExitOK, "keys", "list", "-o", "json")
	for _, k := range decoded[[]struct{ KeyID, UserID string }](t, b) {
		if k.UserID == "anna" {
			run(cli.ExitOK, "keys", "revoke", k.KeyID)
		}
	}
	run(cli.ExitNotFound, "keys", "revoke", "0190a6e0-0000-7000-8000-000000000001")
	as(anna)
	revoked := func() bool { return b.run(t.Context(), "tasks", "list") == cli.ExitAuth }
	require.Eventually(t, revoked, time.Minute, 100*time.Millisecond, "the gateway believes a key for some seconds")
	as("mw_live_guess\r\nX-Injected: yes")
	run(cli.ExitServer, "tasks", "list")
	require.NotContains(t, b.err.String(), "mw_live_guess", "the key is nobody's to read in a log")
	as("mw_live_guess")
	for range 5 {
		b.run(t.Context(), "tasks", "list")
	}
	run(cli.ExitRateLimited, "tasks", "list")
	require.Contains(t, b.err.String(), "TOO_MANY_FAILED_LOGINS")
}

// must runs a command and requires its exit code.
func (b *bundle) must(t *testing.T) func(want int, args ...string) string {
	return func(want int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.Equal(t, want, b.run(ctx, args...), "%v: %s%s", args, b.out.String(), b.err.String())
		return b.out.String()
	}
}

// write makes a file of the test's own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := t.TempDir() + "/" + name
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
