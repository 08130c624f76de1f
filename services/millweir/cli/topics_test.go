package cli_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/cli"
)

// answers serves fixed answers by method and path, and notes queries and bodies.
func (b *bundle) answers(t *testing.T, fixed map[string]string) (asked map[string]string) {
	asked = map[string]string{}
	for pattern, text := range fixed {
		b.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			asked[pattern] = r.URL.RawQuery
			if r.Method == http.MethodPost {
				var body map[string]any
				require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
				text, _ := json.Marshal(body)
				asked[pattern] += string(text)
			}
			if text == "" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			_, _ = w.Write([]byte(text))
		})
	}
	return asked
}

func TestMQLooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const g = "GET /internal/mq/topics/orders/groups/g"
	asked := b.answers(t, map[string]string{
		"GET /internal/mq/topics":               `{"items":[{"name":"orders","partitions":2,"layout":"single","status":true,"createdAt":null,"deleting":false},{"name":"old","deleting":true}]}`,
		"GET /internal/mq/topics/orders":        `{"name":"orders","partitions":2,"entries":9,"letters":4,"each":[{"partition":0,"entries":9,"firstId":"2-0","lastId":"5-0"},{"partition":1,"entries":0,"firstId":null,"lastId":null}]}`,
		"GET /internal/mq/topics/orders/groups": `{"items":[{"name":"g","partitions":2,"members":1,"lag":10000,"lagExact":false,"pending":3}]}`,
		g:                                       `{"name":"g","lag":12,"lagExact":true,"pending":1,"partitions":[{"partition":0,"owner":"m1-x","lag":12,"lagExact":true,"lastDelivered":"7-0","frontier":"6-0","frontierAgeMs":90000}]}`,
		g + "/owners":                           `{"unowned":1,"uncovered":0,"partitions":[{"partition":0,"owner":"m1-x","live":true,"leaseLeftMs":1500},{"partition":1,"owner":null}],"members":[{"name":"m1-x","live":true,"owned":1,"target":2}]}`,
		g + "/pending":                          `{"items":[{"partition":1,"id":"3-1","consumer":"m1","idleMs":60000,"deliveries":4}],"nextCursor":null}`,
		g + "/inflight":                         `{"items":[{"partition":1,"consumer":"m1\u001b[31m","live":false,"pending":4,"idleMs":9}]}`,
		"GET /internal/mq/topics/orders/messages": `{"items":[{"partition":0,"id":"5-0","uuid":"u","key":{"value":"k","encoding":"utf-8"},"publishedAt":"2026-01-02T03:04:05Z","payload":{"value":"AAE=","encoding":"base64","bytes":9999,"clipped":true}},{"partition":0,"id":"4-0","payload":{"encoding":"utf-8"},"problem":"malformed: no payload"}]}`,
		"GET /internal/mq/status":                 `{"items":[{"id":"a","status":null},{"id":"b","status":{"state":"failed","updatedAt":"2026-01-02T03:04:05Z","error":{"type":"E","message":"boom","traceback":null}}}]}`,
	})
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"topics"}, []string{"orders", "being deleted"}},
		{[]string{"partitions", "orders"}, []string{"2-0", "5-0", "9 entries", "4 dead letters"}},
		{[]string{"groups", "orders"}, []string{"~10000"}},
		{[]string{"lag", "orders", "g"}, []string{"m1-x", "1m30s", "lag 12 entries, 1 pending"}},
		{[]string{"owners", "orders", "g"}, []string{"1.5s", "1 partitions without an owner"}},
		{[]string{"pending", "orders", "g", "--order", "deliveries", "--min-idle", "5s"}, []string{"3-1", "1m0s"}},
		{[]string{"inflight", "orders", "g"}, []string{`m1\x1b[31m`}},
		{[]string{"recent", "orders", "--partition", "0", "--from", "(3-0"}, []string{"base64:AAE= (9999 bytes)", "unreadable: malformed"}},
		{[]string{"status", "a", "b"}, []string{"unknown or expired", "E: boom"}},
	} {
		require.Equal(t, cli.ExitOK, b.run(t.Context(), append([]string{"mq"}, c.args...)...), "%v %s", c.args, b.err.String())
		for _, want := range c.want {
			require.Contains(t, b.out.String(), want)
		}
		require.Equal(t, cli.ExitOK, b.run(t.Context(), append(append([]string{"mq"}, c.args...), "-o", "json")...), c.args)
		require.True(t, json.Valid(b.out.Bytes()), b.out.String())
		if c.args[0] != "status" {
			require.Equal(t, cli.ExitUsage, b.run(t.Context(), append(append([]string{"mq"}, c.args...), "more", "words")...), c.args)
		}
	}
	require.Equal(t, "limit=50&minIdleMs=5000&order=deliveries", asked[g+"/pending"])
	require.Equal(t, "from=%283-0&limit=20&partition=0", asked["GET /internal/mq/topics/orders/messages"])
	require.Equal(t, "ids=a%2Cb", asked["GET /internal/mq/status"])
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "mq", "groups", "orders", "--stream"))
	require.Equal(t, "kind=stream", asked["GET /internal/mq/topics/orders/groups"])
	require.Equal(t, cli.ExitNotFound, b.run(t.Context(), "mq", "groups", "nothing"))
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "mq", "status"))
}

func TestMQSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const reset = "POST /internal/mq/topics/orders/groups/g/reset"
	asked := b.answers(t, map[string]string{
		"POST /internal/mq/topics/orders/trim":       `{"dryRun":false,"entries":5,"partitions":[{"partition":0,"entries":5,"frontier":"9-0"}]}`,
		reset:                                        `{"pendingDropped":3}`,
		"DELETE /internal/mq/topics/orders":          ``,
		"DELETE /internal/mq/topics/orders/groups/g": ``,
	})
	for _, step := range [][]string{{"trim", "orders", "--finished"}, {"reset", "orders", "g", "--to", "end"}, {"delete", "orders"}, {"delete", "orders", "g"}} {
		require.Equal(t, cli.ExitConfirm, b.run(t.Context(), append([]string{"mq"}, step...)...), step)
	}
	require.Empty(t, asked)
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "mq", "trim", "orders", "--max-age", "24h", "--max-len", "7", "--dry-run"))
	require.JSONEq(t, `{"finished":false,"dryRun":true,"maxLen":7,"maxAgeSeconds":86400}`, asked["POST /internal/mq/topics/orders/trim"])
	require.Contains(t, b.out.String(), "still needed from 9-0")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "mq", "reset", "orders", "g", "--after", "5-0", "--partition", "0", "--force", "--yes"))
	require.JSONEq(t, `{"after":"5-0","partition":0,"force":true,"dropRetries":false}`, asked[reset])
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "mq", "delete", "orders", "--yes"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "mq", "delete", "orders", "g", "--yes"))
	require.Contains(t, b.out.String(), "deleted group g of orders")
	require.Empty(t, asked["DELETE /internal/mq/topics/orders"])
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "mq", "delete", "orders", "--force", "--yes"))
	require.Equal(t, "force=true", asked["DELETE /internal/mq/topics/orders"])
	for _, wrong := range [][]string{{"trim", "orders"}, {"reset", "orders", "g"}, {"reset", "orders", "g", "--to", "end", "--after", "1-0"}, {"delete"}} {
		require.Equal(t, cli.ExitUsage, b.run(t.Context(), append(append([]string{"mq"}, wrong...), "--yes")...), wrong)
	}
}

func TestDLQOfTopics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const letter = `{"id":"1-0","topic":"orders","partition":1,"originalId":"9-0","group":"g","key":{"value":"k1","encoding":"utf-8"},"attempts":5,"maxRetries":5,"failedAt":"2026-01-02T03:04:05Z","error":"no use","headers":{"h":"v"},"payload":{"value":"hello","encoding":"utf-8"},"raw":null,"replayable":true,"replayedAs":"8-0"}`
	const at = "/internal/dlq/topics/orders/"
	asked := b.answers(t, map[string]string{
		"GET " + at + "letters":        `{"items":[` + letter + `],"nextCursor":null}`,
		"GET " + at + "letters/1-0":    letter,
		"POST " + at + "replay":        `{"replayed":2,"skipped":{"REPLAYED":1},"failed":0,"error":null,"nextCursor":null}`,
		"POST " + at + "drop":          `{"dropped":2,"skipped":{},"failed":0,"error":null,"nextCursor":null}`,
		"DELETE " + at + "letters/1-0": ``,
	})
	b.mux.HandleFunc("POST "+at+"letters/1-0/replay", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(letter)) })
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "list", "--topic", "orders", "--group", "g", "--unreplayed", "true"))
	require.Equal(t, "group=g&limit=50&unreplayed=true", asked["GET "+at+"letters"])
	require.Contains(t, b.out.String(), "no use")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "list", "--stream", "orders"))
	require.Equal(t, "kind=stream&limit=50", asked["GET "+at+"letters"])
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "get", "1-0", "--topic", "orders"))
	for _, want := range []string{"hello", "h: v", "8-0", "5 of 5"} {
		require.Contains(t, b.out.String(), want)
	}
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "replay", "1-0", "--topic", "orders"))
	require.Contains(t, b.out.String(), "8-0")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "replay", "--all", "--topic", "orders", "--partition", "1", "--yes"))
	require.JSONEq(t, `{"all":true,"dryRun":false,"partition":1,"perSecond":100}`, asked["POST "+at+"replay"])
	require.Contains(t, b.out.String(), "2 replayed, 1 skipped (1 REPLAYED)")
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "dlq", "replay", "--all", "--topic", "orders", "--partition", "x", "--yes"))
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "--all", "--stream", "orders", "--yes"))
	require.Contains(t, asked["POST "+at+"drop"], "kind=stream")
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "1-0", "--topic", "orders", "--yes"))
	require.Empty(t, asked["DELETE "+at+"letters/1-0"])
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "1-0", "--stream", "orders", "--reason", "a & b", "--yes"))
	require.Equal(t, "kind=stream&reason=a+%26+b", asked["DELETE "+at+"letters/1-0"])
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "dlq", "drop", "--all", "--topic", "orders", "--reason", "a & b", "--yes"))
	require.JSONEq(t, `{"all":true,"dryRun":false,"reason":"a & b"}`, asked["POST "+at+"drop"])
}
