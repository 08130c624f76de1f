package installation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
)

// uploadLoad is the process that uploads: URL NUMBER DURATION KEYS. It prints what came of it as JSON.
func uploadLoad(args []string, stdout io.Writer) error {
	if len(args) != 4 {
		return errors.New("want URL NUMBER DURATION KEYS")
	}
	number, err := strconv.Atoi(args[1])
	limit, limitErr := time.ParseDuration(args[2])
	if err := errors.Join(err, limitErr); err != nil {
		return err
	}
	l := &uploadClientsOf{
		url: args[0], number: number, keys: args[3] == "true",
		body: apiclient.Text(number, uploadBytes).Body,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: uploadClients}, Timeout: time.Minute},
	}
	return json.NewEncoder(stdout).Encode(l.run(limit))
}

// uploadClientsOf are 64 clients that upload one document after the other.
type uploadClientsOf struct {
	url    string
	number int
	keys   bool
	body   []byte
	http   *http.Client

	next  atomic.Int64
	mu    sync.Mutex
	took  []time.Duration
	sum   uploaded
	since time.Time
}

func (l *uploadClientsOf) run(limit time.Duration) uploaded {
	l.since = time.Now()
	var all sync.WaitGroup
	for range uploadClients {
		all.Go(func() {
			for time.Since(l.since) < limit {
				began := time.Now()
				l.note(began, l.one(int(l.next.Add(1))))
			}
		})
	}
	all.Wait()
	l.sum.Seconds = time.Since(l.since).Seconds()
	l.sum.P50, l.sum.P99 = figure.Ms(figure.Percentile(l.took, 50)), figure.Ms(figure.Percentile(l.took, 99))
	return l.sum
}

func (l *uploadClientsOf) note(began time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.sum.Failed++; l.sum.Error == "" {
			l.sum.Error = err.Error()
		}
		return
	}
	l.sum.Answered++
	l.took = append(l.took, time.Since(began))
}

// one uploads a document of its own: the round's text behind a first line that no other has.
func (l *uploadClientsOf) one(n int) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", fmt.Sprintf("upload-%d-%d.txt", l.number, n))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(part, "Upload %d of round %d.\n", n, l.number) // a buffer takes everything
	_, _ = part.Write(l.body)
	if err := form.Close(); err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, l.url, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	if l.keys {
		req.Header.Set("Idempotency-Key", fmt.Sprintf("upload-%d-%d", l.number, n))
	}
	res, err := l.http.Do(req)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", res.Status, answer)
	}
	return nil
}
