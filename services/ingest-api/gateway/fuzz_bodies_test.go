package gateway

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzJSONBodies sends any body to every route that takes one: the answer is one that the description announces,
// and never a failure of ours.
func FuzzJSONBodies(f *testing.F) {
	shared := newBench(f)
	var targets [][2]string
	for _, route := range shared.g.engine.Routes() {
		if route.Method == http.MethodPost || route.Method == http.MethodPut {
			targets = append(targets, [2]string{route.Method, route.Path})
		}
	}
	slices.SortFunc(targets, func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
	require.NotEmpty(f, targets)
	for i := range targets {
		for _, seed := range []string{
			``, `{}`, `null`, `[]`, `{"query":"dead letter","k":5}`, `{"query":"x","knowledgeBase":"default","k":-1}`, `{"name":"notes"}`,
			`{"name":"../x","description":"\u0000"}`, `{"name":"n","metadataSchema":{"fields":{"a":{"type":"number","required":true,"values":[1,"2"]}},"additional":false}}`,
			`{"userId":"u","scopes":["read"],"name":"n","expiresAt":"2030-01-01T00:00:00Z"}`,
			`{"reason":"because"}`, `{"all":true,"limit":1,"perSecond":9,"dryRun":true}`, `{"task":"t","failedAfter":"2026-01-01T00:00:00Z","cursor":"x"}`, `{"query":1e400}`, `{"query":"a","query":"b"}`, `{"k":99999999999999999999}`, "{\"name\":\"\xff\"}", `{"name":"a"}{`,
		} {
			f.Add(uint8(i), []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		b := *shared
		b.t = t
		target := targets[int(which)%len(targets)]
		path := strings.NewReplacer(":taskId", bodyID, ":documentId", bodyID, ":base", bodyID, ":keyId", bodyID, ":eventId", bodyID, ":letterId", bodyID, ":topic", bodyID, ":group", "g", ":operationId", bodyID, ":viewId", bodyID, ":worker", bodyID, ":checkId", bodyID).Replace(target[1])
		require.NotContains(t, path, ":", "a parameter without a value")
		for _, who := range []string{ada, operator} {
			w := httptest.NewRecorder()
			b.g.ServeHTTP(w, b.request(who, target[0], path, strings.NewReader(string(body)), "Content-Type", "application/json"))
			require.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body.String())
			checkAnswer(t, b.g.api, target[0], target[1], w)
		}
		require.Zero(t, b.held(), "a received file was left")
	})
}

const bodyID = "0190a6e0-0000-7000-8000-000000000001"
