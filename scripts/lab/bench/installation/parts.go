package installation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
)

// plainStatements are what a handler without batches writes for one upload, into tables of the product's shape.
var plainStatements = []string{
	`INSERT INTO stored_file (id, user_id, sha256, bytes, original_name, media_type, path, created_at)
	 VALUES (?, 'plain', ?, ?, ?, 'text/plain', ?, NOW(6))`,
	`INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, bytes, content_sha256, same_sha256,
	   last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at)
	 VALUES (?, 'plain', 'plain', ?, ?, 'text/plain', 'QUEUED', ?, ?, ?, 1, 1, ?, NOW(6), NOW(6), '9999-12-31')`,
	`INSERT INTO document_version (id, document_id, base_id, task_id, file_id, no, upload_no, state, title, created_at, updated_at, sweep_at)
	 VALUES (?, ?, 'plain', ?, ?, 1, 1, 'BUILDING', ?, NOW(6), NOW(6), '9999-12-31')`,
	`INSERT INTO ingest_task_body (id, user_id, document_id, knowledge_base_id, file_path, type, channel, max_attempts, created_at)
	 VALUES (?, 'plain', ?, 'plain', ?, 'document', 'http', 10, NOW(6))`,
	`INSERT INTO ingest_task_state (id, status, wake_at, promised_at, updated_at) VALUES (UNHEX(REPLACE(?, '-', '')), 'QUEUED', NOW(6), NOW(6), NOW(6))`,
	`INSERT INTO ingest_task_call (to_status, reason, timeline, actor, call_id, tasks, ids, created_at)
	 VALUES ('QUEUED', 'ACCEPTED', 1, 'user:plain', X'00', 1, UNHEX(REPLACE(?, '-', '')), NOW(6))`,
	`INSERT INTO ingest_task_log (task_id, call_no) VALUES (UNHEX(REPLACE(?, '-', '')), LAST_INSERT_ID())`,
}

// plain are the handlers to compare with: /rows keeps every upload by itself, in the order that makes it durable;
// /file only writes the file and syncs it.
type plain struct {
	dir    string
	db     *sql.DB
	stream rueidis.Client
}

// plainHandlers is the process that serves them until its input ends: DIR DSN REDIS. It prints its address.
func plainHandlers(args []string, stdout io.Writer) error {
	if len(args) != 3 {
		return errors.New("want DIR DSN REDIS")
	}
	cfg, err := mysql.ParseDSN(args[1])
	if err != nil {
		return err
	}
	cfg.InterpolateParams = true // one round trip a statement
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	p := &plain{dir: args[0], db: sql.OpenDB(connector)}
	p.db.SetMaxOpenConns(uploadClients)
	p.db.SetMaxIdleConns(uploadClients)
	options, err := rueidis.ParseURL(args[2])
	if err != nil {
		return err
	}
	if p.stream, err = rueidis.NewClient(options); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /file", p.handle(func(context.Context, plainFile) error { return nil }))
	mux.HandleFunc("POST /rows", p.handle(p.keep))
	if _, err := fmt.Fprintf(stdout, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// plainFile is a file that was written and synced.
type plainFile struct {
	id, name, hash string
	bytes          int64
}

// handle takes the form's file in and returns when then has done the rest.
func (p *plain) handle(then func(context.Context, plainFile) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := p.receive(r)
		if err == nil {
			err = then(r.Context(), f)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"taskId": f.id, "status": "QUEUED"})
	}
}

// receive writes the file under a temporary name, syncs it and renames it.
func (p *plain) receive(r *http.Request) (out plainFile, err error) {
	form, err := r.MultipartReader()
	if err != nil {
		return out, err
	}
	part, err := form.NextPart()
	if err != nil {
		return out, err
	}
	out.id, out.name = uuid.Must(uuid.NewV7()).String(), part.FileName()
	f, err := os.Create(filepath.Join(p.dir, "tmp-"+out.id))
	if err != nil {
		return out, err
	}
	hash := sha256.New()
	out.bytes, err = io.Copy(io.MultiWriter(f, hash), part)
	out.hash = hex.EncodeToString(hash.Sum(nil))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return out, err
	}
	return out, os.Rename(filepath.Join(p.dir, "tmp-"+out.id), filepath.Join(p.dir, out.id))
}

// keep syncs the folder, commits the upload's rows and adds its delivery.
func (p *plain) keep(ctx context.Context, f plainFile) error {
	dir, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return err
	}
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	version := uuid.Must(uuid.NewV7()).String()
	for i, args := range [][]any{
		{f.id, f.hash, f.bytes, f.name, f.id},
		{f.id, f.name, f.name, f.bytes, f.hash, f.hash, f.id},
		{version, f.id, f.id, f.id, f.name},
		{f.id, f.id, f.id},
		{f.id},
		{f.id},
		{f.id},
	} {
		if _, err := tx.ExecContext(ctx, plainStatements[i], args...); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return p.stream.Do(ctx, p.stream.B().Xadd().Key("plain:tasks").Id("*").FieldValue().
		FieldValue("taskId", f.id).FieldValue("userId", "plain").FieldValue("documentId", f.id).FieldValue("filePath", f.id).Build()).Error()
}

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
	return l.total()
}

// total is what the load came to.
func (l *uploadClientsOf) total() uploaded {
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
