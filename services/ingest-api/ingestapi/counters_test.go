//go:build !race

// The race detector slows uploads down, and fewer share a transaction: their cost is judged without it.

package ingestapi

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

const (
	costClients  = 64
	costRequests = 40 // of each client
	costBytes    = 10_000
)

// What an upload costs the database when many come at once, in counts that carry no noise.
// Not parallel: it sets variables.
func TestWhatAnUploadCosts(t *testing.T) {
	database := labserver.Private(t, labserver.KindMariaDB, labserver.Options{Database: "m"})
	url, user, _ := serve(t, map[string]string{
		"MYSQL_DSN": database.DSN(""), "REDIS_URL": labserver.Private(t, labserver.KindRedis, labserver.Options{}).URL(""),
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: costClients}}
	defer client.CloseIdleConnections()
	cost := func(round string, keys bool) labserver.Counters {
		before, err := database.Counters(t.Context())
		require.NoError(t, err)
		uploadAll(t, client, url, user, round, keys)
		after, err := database.Counters(t.Context())
		require.NoError(t, err)
		per := after.Sub(before).Per(costClients * costRequests)
		t.Logf("a request (%s): %.3f statements, %.3f commits, %.3f fsyncs, %.0f bytes of redo, %.2f rows looked at",
			round, per.Statements, per.Commits, per.Fsyncs, per.RedoBytes, per.RowsRead)
		return per
	}
	uploadAll(t, client, url, user, "warm", true) // connections are made, the key is looked up
	per := cost("measured", false)
	require.LessOrEqual(t, per.Commits, 0.1, "commits")
	require.LessOrEqual(t, per.Statements/per.Commits, 12.5, "12 statements of a transaction, whatever number of uploads shares it, and a look at the key every 3 s")
	require.LessOrEqual(t, per.Statements, 0.62, "statements: 12 a transaction, which 19 uploads and more share: 30 on a quiet machine, 23 beside three busy loops")
	per = cost("with keys", true)
	require.LessOrEqual(t, per.Commits, 0.1, "commits: what comes at once claims no key")
	require.LessOrEqual(t, per.Statements, 0.7, "statements: the keys' tasks and their claims are looked for besides")
}

// uploadAll lets every client upload its files, one after the other, each unlike all others.
func uploadAll(t *testing.T, client *http.Client, url, key, round string, keys bool) {
	t.Helper()
	var clients sync.WaitGroup
	failed := make(chan error, costClients)
	for c := range costClients {
		clients.Go(func() {
			for n := range costRequests {
				if err := uploadOne(t, client, url, key, fmt.Sprintf("%s-%d-%d", round, c, n), keys); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	clients.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
}

// uploadOne uploads a text that repeats its name.
func uploadOne(t *testing.T, client *http.Client, url, key, name string, withKey bool) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", name+".txt")
	if err != nil {
		return err
	}
	_, _ = io.WriteString(part, strings.Repeat(name+"\n", costBytes/(len(name)+1)))
	if err := form.Close(); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/knowledge/documents/upload-async", &body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", form.FormDataContentType())
	if withKey {
		req.Header.Set("Idempotency-Key", name)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("upload %s: %d %s", name, res.StatusCode, text)
	}
	return err
}
