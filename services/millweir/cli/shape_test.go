package cli_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	uuid1 = "0190a6e0-0000-7000-8000-000000000001"
	made  = `"createdAt":"2026-01-02T03:04:05.000001Z","updatedAt":"2026-01-02T03:04:06.500000Z"`
	run1  = `{"taskId":"` + uuid1 + `","documentId":"d1","knowledgeBaseId":"b1","knowledgeBase":"notes","fileName":"mill.pdf","type":"document","channel":"http","status":"RETRYING","stage":"embed",` +
		`"progress":40,"processedSegments":4,"totalSegments":10,"attemptCount":1,"maxAttempts":10,"crashCount":0,"nextRetryAt":"2026-01-02T03:05:00.000000Z",` +
		`"errorCode":"EMBED","errorMessage":null,"lastError":"embed batch 1/2: refused","waiting":{"reason":"RETRY_BACKOFF","until":null},` + made + `}`
	event1  = `{"id":"e1","topic":"ingest-tasks","taskId":"` + uuid1 + `","status":"DEAD","cause":"REFUSED","attemptCount":3,"nextRetryAt":null,"lastError":"too large","createdAt":"2026-01-02T03:04:05Z","sentAt":null}`
	letter1 = `{"id":"1-0","source":"redis","taskId":"` + uuid1 + `","fence":3,"attemptCount":2,"lastError":"embed: refused","failedAt":"2026-01-02T03:04:05Z",` +
		`"sourceStream":"ingest:tasks","sourceGroup":"g","sourceRecordId":"1-1","raw":null,"task":{"status":"DEAD","fence":3},"replayable":true,"reason":null,"why":null}`
	message1 = `{"id":"1-0","topic":"orders","partition":1,"originalId":"9-0","group":"g","key":{"value":"k1","encoding":"utf-8","bytes":2,"clipped":false},"attempts":5,"maxRetries":5,` +
		`"failedAt":"2026-01-02T03:04:05Z","error":"no use","headers":{"h":"v"},"payload":{"value":"AAE=","encoding":"base64","bytes":9999,"clipped":true},"raw":null,"replayable":true,"replayedAs":"8-0"}`
	topic1     = `{"name":"orders","partitions":2,"layout":"single","status":true,"createdAt":"2026-01-02T03:04:05Z","deleting":false}`
	operation1 = `{"operationId":"o1","action":"retry","filter":"status:DEAD","reason":"mended","ratePerSecond":5,"userId":"anna","status":"SUSPENDED","matched":10,"done":4,"failed":1,"skipped":{"GONE":2},` +
		`"errorMessage":null,"createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z"}`
	view1   = `{"viewId":"v1","name":"dead","filter":"status:DEAD","shared":true,"userId":"anna","createdAt":"2026-01-02T03:04:05Z"}`
	base1   = `{"knowledgeBaseId":"b1","name":"notes","model":{"key":"m/1","dimension":3},"searchMode":"auto","chunking":null,"metadataSchema":null,` + made + `}`
	events1 = "id: 1\nevent: status\ndata: " + run1 + "\n\n: heartbeat\n\nid: 2\nevent: status\ndata: {\"taskId\":\"" + uuid1 + "\",\"status\":\"SUCCEEDED\",\"progress\":100}\n\n"
)

// list1 is a list of one.
func list1(item string) string { return `{"items":[` + item + `],"nextCursor":null,"hasMore":false}` }

// check1 is a check of the installation that has ended, with what is known besides.
func check1(more string) string {
	return `{"checkId":"c1","userId":"root","deep":false,"history":true,"repair":true,"dryRun":true,"reason":"","status":"SUCCEEDED","stepsDone":7,"steps":7,` +
		`"violations":2,"left":null,"errorMessage":null,"createdAt":"2026-01-02T03:04:05Z","endedAt":"2026-01-02T03:05:05Z","seconds":1.5` + more + `}`
}

// canned are the gateway's answers by method and path; what is empty is 204.
var canned = map[string]string{
	"GET /api/knowledge/documents":                   list1(`{"documentId":"d1","knowledgeBase":"notes","title":"Guide\u001b[31m","fileName":"g.pdf","metadata":{"lang":"de","year":2024},"status":"READY","visibleVersion":2,"segmentCount":12,"pages":null,"updatedAt":"2026-01-02T03:04:05Z"}`),
	"GET /api/knowledge/tasks":                       list1(run1),
	"GET /api/knowledge/failures":                    list1(`{"groupId":"0a1b","pattern":"embed batch ?: refused\u001b[31m","errorCode":"EMBEDDING_REJECTED","permanent":true,"failures":12,"tasks":3,"firstAt":"2026-01-02T03:04:05Z","lastAt":"2026-01-02T03:04:06Z","stages":["embed"],"bases":["b1"],"error":"embed batch 1/2: refused","remedy":null,"taskId":"` + uuid1 + `"}`),
	"POST /api/knowledge/bulk":                       operation1,
	"GET /api/knowledge/bulk":                        list1(operation1),
	"GET /api/knowledge/bulk/o1":                     operation1,
	"POST /api/knowledge/bulk/o1/pause":              operation1,
	"POST /api/knowledge/bulk/o1/resume":             operation1,
	"POST /api/knowledge/bulk/o1/stop":               operation1,
	"GET /api/knowledge/views":                       list1(view1),
	"POST /api/knowledge/views":                      view1,
	"DELETE /api/knowledge/views/v1":                 "",
	"GET /openapi.json":                              `{"info":{"version":"x"},"x-error-codes":{"ENCRYPTED":{"status":422,"message":"It has a password.","remedy":"Remove it."},"A_CODE":{"status":500,"message":"m","remedy":"r"}}}`,
	"GET /api/knowledge/bases":                       list1(base1),
	"POST /api/knowledge/bases":                      base1,
	"DELETE /api/knowledge/bases/a%2Fb":              "",
	"GET /api/knowledge/bases/notes/summary":         `{"base":` + base1 + `,"documents":{"READY":2,"FAILED":1},"tasks":{"DEAD":1,"RUNNING":3},"segments":9,"stages":{"embed":2,"split":1},"perMinute":12.5,"secondsLeft":95,"secondsHalf":1.204,"secondsMost":75}`,
	"POST /api/knowledge/bases/notes/reindex":        `{"data":{"taskId":"` + uuid1 + `","status":"QUEUED","result":null,"retry":{"count":0,"max":3,"nextAttemptAt":null},"error":null},"meta":{"requestId":"r"}}`,
	"GET /api/knowledge/documents/d1":                `{"documentId":"d1","knowledgeBase":"notes","title":"Guide","fileName":"g.pdf","status":"READY","segmentCount":12,"updatedAt":"2026-01-02T03:04:05Z"}`,
	"GET /api/knowledge/documents/d1/segments":       list1(`{"index":0,"text":"one\ntwo","page":3,"pageFrom":3,"pageTo":3,"headingPath":[],"byteStart":0,"byteEnd":7,"tokens":2}`),
	"DELETE /api/knowledge/documents/d1":             "",
	"POST /internal/tasks/" + uuid1 + "/suspend":     run1,
	"POST /internal/tasks/" + uuid1 + "/resume":      `{"status":"queued","taskId":"` + uuid1 + `"}`,
	"GET /internal/tasks/stats":                      `{"counts":{"CANCELLED":0,"DEAD":2,"RUNNING":1},"streamLength":4,"retryLength":1,"suspendedLength":0,"recent":{"DEAD":1}}`,
	"GET /api/knowledge/tasks/" + uuid1:              run1,
	"GET /api/knowledge/tasks/" + uuid1 + "/events":  events1,
	"GET /api/knowledge/tasks/" + uuid1 + "/explain": `{"task":` + run1 + `,"text":"The task waits for 02:03.","now":"2026-01-02T03:04:05Z","lastChanges":[],"event":null}`,
	"POST /api/knowledge/tasks/" + uuid1 + "/retry":  run1,
	"POST /api/knowledge/tasks/" + uuid1 + "/cancel": run1,
	"POST /api/knowledge/documents/upload-async":     strings.TrimSuffix(run1, "}") + `,"fileName":"a.txt","duplicate":true,"replayed":false,"document":null}`,
	"GET /api/knowledge/documents/d1/versions":       list1(`{"version":2,"state":"SUPERSEDED","title":"two\u001b[31m","taskId":"t1","model":null,"reader":"text/1","chunker":"x","segmentCount":3,"pages":null,"contentKept":true,"createdAt":"2026-01-02T03:04:05Z","closedAt":null}`),
	"GET /api/knowledge/documents/d1/deletion":       `{"documentId":"d1","knowledgeBaseId":"b1","state":"VERIFIED","sha256":"ab","bytes":7,"versions":2,"segments":3,"vectors":4,"files":1,"deletedBy":"user:ada\u001b[31m","deletedAt":"2026-01-02T03:04:05Z","removedAt":"2026-01-02T03:15:05Z","verifiedAt":"2026-01-03T04:04:05Z"}`,
	"POST /api/knowledge/documents/d1/rollback":      strings.TrimSuffix(run1, "}") + `,"fileName":"a.txt","duplicate":false,"replayed":false,"document":null}`,
	"POST /api/workflows/apply":                      `{"data":{"taskId":"` + uuid1 + `","status":"DEAD","result":{"n":1},"retry":{"count":2,"max":3,"nextAttemptAt":"2026-01-02T03:05:00.000000Z"},"error":{"code":"X","message":"no\u001b[31m"}},"meta":{"requestId":"r"}}`,
	"POST /api/knowledge/search":                     `{"hits":[{"documentId":"d1","title":"Guide","fileName":"g.pdf","version":1,"segmentIndex":2,"page":3,"pageFrom":3,"pageTo":4,"headingPath":["A","B"],"metadata":{"lang":"de"},"text":"It is. It is found\n here.","sentence":{"text":"It is found\n here.","start":7,"page":4,"highlights":[[6,11]]},"score":0.5,"highlights":[[13,18]]}],"groups":[{"documentId":"d2","title":"Other","score":0.25,"hits":[{"documentId":"d2","title":"Other","text":"Here too.","score":0.25}]}],"nextCursor":"next","hasMore":true,"partial":true}`,
	"POST /internal/fsck":                            check1(""),
	"GET /internal/fsck":                             list1(check1("")),
	"GET /internal/fsck/c1": check1(`,"rules":[{"rule":"I12","sentence":"Nothing accepted is lost.","judged":9,"violations":2,"notJudged":null,"examples":[` +
		`{"about":"d1","kind":"document","problem":"the file \u001b[31m is missing","history":"QUEUED\nRUNNING"}]},` +
		`{"rule":"I16","sentence":"Events are sent once.","judged":0,"violations":0,"notJudged":"there is no Kafka","examples":[]}],` +
		`"repairReport":{"dryRun":true,"mends":[{"what":"delete_vectors","rule":"I25","count":3,"items":["b1/v1"]}],"left":["d1: its file is gone"],"leftCount":2},` +
		`"young":4,"uncompared":5,"shortened":true`),
	"GET /internal/outbox":                    `{"counts":{"NEW":1,"RETRYING":2,"SENT":3,"DEAD":4},"backlog":3,"oldestAgeSeconds":1.5}`,
	"GET /internal/outbox/events":             list1(event1),
	"POST /internal/outbox/events/e1/requeue": event1,
	"POST /internal/outbox/requeue":           `{"requeued":4,"more":false}`,
	"GET /internal/workers": `{"items":[` +
		`{"name":"w-1\u001b[31m","alive":true,"startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z","drainAt":null,"drainedAt":null,"running":3,"slots":64,"more":true,"tasks":[]},` +
		`{"name":"w-2","alive":true,"startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z","drainAt":"2026-01-02T03:04:05Z","drainedAt":null,"running":1,"slots":0,"more":false,"tasks":[]},` +
		`{"name":"w-3","alive":true,"startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z","drainAt":"2026-01-02T03:04:05Z","drainedAt":"2026-01-02T03:04:09Z","running":0,"slots":8,"more":false,"tasks":[]},` +
		`{"name":"w-4","alive":false,"startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z","drainAt":null,"drainedAt":null,"running":2,"slots":null,"more":false,"tasks":[]},` +
		`{"name":"w-5","alive":false,"startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z","drainAt":null,"drainedAt":null,"running":0,"slots":null,"more":false,"tasks":[]}` +
		`],"nextCursor":null,"hasMore":false}`,
	"POST /internal/workers/w%2F1/drain":                  "",
	"POST /internal/workers/w-2/drain":                    "",
	"POST /internal/workers/w-2/resume":                   "",
	"GET /internal/dlq":                                   list1(letter1),
	"GET /internal/dlq/letters/1-0":                       letter1,
	"POST /internal/dlq/letters/1-0/replay":               run1,
	"DELETE /internal/dlq/letters/1-0":                    "",
	"POST /internal/dlq/replay":                           `{"dryRun":false,"replayed":2,"skipped":{"SUPERSEDED":1},"failed":0,"error":null,"nextCursor":null,"hasMore":false}`,
	"POST /internal/dlq/drop":                             `{"dryRun":false,"dropped":2,"skipped":{},"failed":0,"error":null,"nextCursor":null,"hasMore":false}`,
	"GET /internal/dlq/topics/orders/letters":             list1(message1),
	"GET /internal/dlq/topics/orders/letters/1-0":         message1,
	"POST /internal/dlq/topics/orders/letters/1-0/replay": message1,
	"GET /internal/mq/topics":                             list1(topic1),
	"GET /internal/mq/topics/orders":                      strings.TrimSuffix(topic1, "}") + `,"kind":"topic","entries":9,"retries":1,"malformedRetries":0,"letters":4,"payloadsBeside":0,"each":[{"partition":0,"entries":9,"payloadsBeside":0,"firstId":"2-0","lastId":null}]}`,
	"DELETE /internal/mq/topics/orders":                   "",
	"DELETE /internal/mq/topics/orders/groups/g":          "",
	"POST /internal/mq/topics/orders/trim":                `{"dryRun":true,"entries":5,"partitions":[{"partition":0,"entries":5,"frontier":"9-0"}]}`,
	"GET /internal/mq/topics/orders/groups":               list1(`{"name":"g","partitions":2,"members":1,"lag":10000,"lagExact":false,"pending":3}`),
	"GET /internal/mq/topics/orders/groups/g":             `{"name":"g","lag":12,"lagExact":true,"pending":1,"partitions":[{"partition":0,"owner":"m1","epoch":null,"length":9,"lag":12,"lagExact":true,"pending":1,"putOff":0,"consumers":1,"lastDelivered":"7-0","frontier":"6-0","frontierAgeMs":90000}]}`,
	"POST /internal/mq/topics/orders/groups/g/reset":      `{"pendingDropped":3}`,
	"GET /internal/mq/topics/orders/groups/g/owners":      `{"unowned":1,"uncovered":0,"partitions":[{"partition":0,"owner":"m1","live":true,"leaseLeftMs":1500,"epoch":"4"},{"partition":1,"owner":null,"live":false,"leaseLeftMs":0,"epoch":null}],"members":[{"name":"m1","live":true,"heartbeatLeftMs":900,"cap":0,"owned":1,"target":2}]}`,
	"GET /internal/mq/topics/orders/groups/g/pending":     list1(`{"partition":1,"id":"3-1","consumer":"m1","idleMs":60000,"deliveries":4}`),
	"GET /internal/mq/topics/orders/groups/g/inflight":    list1(`{"partition":1,"consumer":"m1","live":false,"pending":4,"idleMs":9}`),
	"GET /internal/mq/topics/orders/messages":             list1(`{"partition":0,"id":"5-0","uuid":"u","key":null,"publishedAt":"2026-01-02T03:04:05Z","failed":1,"originalId":null,"group":null,"headers":{},"payload":{"value":"x","encoding":"utf-8","bytes":1,"clipped":false},"problem":null,"raw":null}`),
	"GET /internal/mq/status":                             `{"items":[{"id":"a","status":null},{"id":"b","status":{"state":"failed","updatedAt":"2026-01-02T03:04:05Z","error":{"type":"E","message":"boom","traceback":null}}}],"nextCursor":null,"hasMore":false}`,
}

// TestWhatEveryVerbAsksAndPrints compares the requests and the output of every verb in every format with golden files.
// After a wished change: `go test -run TestWhatEveryVerbAsksAndPrints -update`, and look at the difference.
func TestWhatEveryVerbAsksAndPrints(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"submit": {"submit testdata/a.txt --kb notes --title T --force --meta lang=de --meta year:=2024 --meta note=a=b", "submit https://example.com/x --kb notes --title T"},
		"apply": {
			"apply ingest.text some words to find --chat 7 --key k", "apply sum --payload a=b --payload n:=[1,2] --retries 10 --wait 2m", "apply sum - --wait 0s",
		},
		"tasks": {
			"tasks list --status DEAD --kb notes --q x --limit 7", "tasks get " + uuid1, "tasks watch " + uuid1, "tasks retry " + uuid1,
			"tasks cancel " + uuid1 + " --yes", "tasks explain " + uuid1,
			"tasks wait " + uuid1, "tasks wait --filter kb:notes", "tasks suspend " + uuid1, "tasks resume " + uuid1, "tasks list --filter status:DEAD",
		},
		"documents": {"documents list --status READY --kb notes --q x --meta lang=de --meta year:={\"gte\":2020} --limit 7", "documents rollback d1", "documents rollback d1 --version 3", "documents deletion d1", "documents get d1", "documents segments d1", "documents versions d1", "documents delete d1 --yes"},
		"bases":     {"bases list", "bases get notes", "bases create notes --search text", "bases delete a/b --cascade --yes", "bases reindex notes --dry-run"},
		"work": {
			"groups --kb notes", "errors", "errors encrypted", "bulk run retry --filter status:DEAD --reason mended --rps 5 --yes", "bulk list", "bulk get o1",
			"bulk pause o1", "bulk resume o1", "bulk stop o1", "views list", "views save dead status:DEAD --shared", "views delete v1",
		},
		"search": {
			"search dead letter --kb notes --top 3",
			"search x --document d1,d2 --type text/plain --meta lang=de --meta year:=[2020,2024] --created-after 2026-01-01T00:00:00Z --updated-before 2026-02-01T00:00:00Z --by-document --cursor abc",
		},
		"outbox": {"outbox list --state SENT --topic t --task x", "outbox requeue e1", "outbox requeue --all --cause REFUSED --yes", "outbox stats"},
		"dlq": {
			"dlq list --task x --source table --failed-before 2026-01-01T00:00:00Z", "dlq get 1-0", "dlq replay 1-0", "dlq drop 1-0 --yes",
			"dlq replay --all --error x --yes", "dlq drop --all --yes", "dlq list --topic orders --key k --unreplayed true",
			"dlq list --stream orders", "dlq get 1-0 --topic orders", "dlq replay 1-0 --stream orders",
		},
		"workers": {"workers list", "workers drain w/1 w-2", "workers resume w-2", "workers drain nobody"},
		"checks":  {"checks run --history --repair --dry-run", "checks run --deep --repair --reason mended --yes", "checks list", "checks get c1"},
		"mq": {
			"mq topics", "mq partitions orders", "mq groups orders", "mq lag orders g", "mq owners orders g", "mq pending orders g --min-idle 5m",
			"mq inflight orders g", "mq recent orders --partition 0 --from 1-0 --to +", "mq trim orders --max-len 5 --max-age 1h --dry-run",
			"mq reset orders g --time 2026-01-01T00:00:00Z --partition 3 --drop-retries --yes", "mq delete orders --yes", "mq delete orders g --force --yes",
			"mq status a b", "mq groups orders --stream",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, seen := cannedGateway(t)
			var got strings.Builder
			for _, line := range lines {
				for _, output := range []string{"table", "json", "jsonl", "name"} {
					seen.Reset()
					args := strings.Fields(line)
					code := b.run(t.Context(), append(args, "-o", output)...)
					if output == "table" {
						fmt.Fprintf(&got, "$ millweir %s\n%s", line, seen.String())
					}
					fmt.Fprintf(&got, "-- %s, exit %d\n%s", output, code, b.out.String())
				}
				got.WriteString(b.err.String() + "\n")
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644)) //nolint:gosec // a test's file
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got.String())
		})
	}
}

// derived is an idempotency key that the command line made: another one in each run.
var derived = regexp.MustCompile(`cli-[0-9a-f]{64}`)

// cannedGateway answers from the table and notes what it was asked.
func cannedGateway(t *testing.T) (*bundle, *strings.Builder) {
	t.Helper()
	b, seen := setup(t), &strings.Builder{}
	b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer, known := canned[r.Method+" "+r.URL.EscapedPath()]
		if !known {
			reply(w, http.StatusNotFound, map[string]any{"code": "NOT_FOUND", "message": "no such thing"})
			return
		}
		fmt.Fprintf(seen, "%s %s\n", r.Method, r.URL.RequestURI())
		if body, _ := io.ReadAll(r.Body); len(body) > 0 && r.Header.Get("Content-Type") == "application/json" {
			fmt.Fprintf(seen, "  %s\n", derived.ReplaceAll(body, []byte("cli-…")))
		} else if len(body) > 0 {
			fmt.Fprintf(seen, "  a form with %d parts\n", strings.Count(string(body), "Content-Disposition"))
		}
		if answer == "" {
			w.WriteHeader(http.StatusNoContent)
		}
		_, _ = io.WriteString(w, answer)
	})
	return b, seen
}

// Every verb explains itself, and refuses a flag that it does not know.
func TestEveryVerbHasHelp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Zero(t, b.run(t.Context(), "help"))
	verbs := 0
	for line := range strings.Lines(b.out.String()) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "millweir" || words[1] == "takes" || words[1] == "completion" {
			continue
		}
		verbs++
		var name []string
		for _, w := range words[1:] {
			if w != strings.ToLower(w) || strings.HasPrefix(w, "[") || strings.HasPrefix(w, "-") {
				break
			}
			name = append(name, w)
		}
		name = name[:min(len(name), 2)]
		if name[0] == "submit" || name[0] == "watch" || name[0] == "doctor" || name[0] == "top" || name[0] == "groups" || name[0] == "errors" || name[0] == "apply" || name[0] == "search" {
			name = name[:1]
		}
		require.Zero(t, b.run(t.Context(), append(name, "--help")...), name)
		help := b.out.String()
		for _, want := range []string{"Usage:\n  millweir " + strings.Join(name, " "), "--output", "--server", "--yes"} {
			require.Contains(t, help, want, name)
		}
		require.Zero(t, b.run(t.Context(), append([]string{"help"}, name...)...), name)
		require.Equal(t, help, b.out.String(), name)
		require.Equal(t, 2, b.run(t.Context(), append(name, "--no-such-flag")...), name)
		require.Contains(t, b.err.String(), "unknown flag: --no-such-flag\nusage: millweir "+strings.Join(name, " "), name)
	}
	require.Equal(t, 80, verbs)
	require.Zero(t, b.run(t.Context(), "dlq", "--help"))
	require.Contains(t, b.out.String(), "replay")
	require.Zero(t, b.run(t.Context(), "completion", "bash"))
	require.Contains(t, b.out.String(), "millweir")
	require.Zero(t, b.run(t.Context(), "__complete", "tasks", "ca"))
	require.Contains(t, b.out.String(), "cancel\twithdraw tasks")
	for _, wrong := range [][]string{{"tasks"}, {"tasks", "lost"}, {"mq"}, {"lost", "and", "found"}} {
		require.Equal(t, 2, b.run(t.Context(), wrong...), wrong)
		require.Contains(t, b.err.String(), fmt.Sprintf("unknown command %q", strings.Join(wrong, " ")))
	}
}

// The address, and what stands in the variable instead of the flag.
func TestServerFlagWinsOverTheVariable(t *testing.T) {
	t.Parallel()
	b, seen := cannedGateway(t)
	here := b.env["MILLWEIR_SERVER"]
	b.env["MILLWEIR_SERVER"] = "http://127.0.0.1:1"
	require.Equal(t, 7, b.run(t.Context(), "outbox", "stats"))
	require.Zero(t, b.run(t.Context(), "outbox", "stats", "--server", here+"/"))
	require.Equal(t, "GET /internal/outbox\n", seen.String())
	b.env["MILLWEIR_SERVER"] = "http://\x7f"
	require.Equal(t, 2, b.run(t.Context(), "outbox", "stats"), "not an address")
}

// A gateway that does not answer is left when the person goes.
func TestInterruptIsExit130(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, leave := make(chan struct{}), make(chan struct{})
	b.mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		select {
		case <-r.Context().Done():
		case <-leave:
		}
	})
	defer close(leave)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	go func() {
		<-begun
		cancel()
	}()
	require.Equal(t, 130, b.run(ctx, "outbox", "stats"))
}
