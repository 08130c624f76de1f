package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// submitAtOnce is how many files are sent and watched at a time.
const submitAtOnce = 4

// submitted is one file with what became of it.
type submitted struct {
	File  string `json:"file"`
	Task  *task  `json:"task,omitempty"`
	Error string `json:"error,omitempty"`
	err   error
}

// submit sends files; with --wait it follows them to their end. Exit 1 when one failed.
func submit(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "submit")
	kb := f.String("kb", "", "knowledge base (made when missing for the name default)")
	title := f.String("title", "", "title; only with one file")
	wait := f.Bool("wait", false, "wait until the documents are searchable")
	force := f.Bool("force", false, "take the same bytes in again")
	timeout := f.Duration("timeout", 0, "give up after this time; 0: never")
	files, err := f.parse(args)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return &usageError{"needs at least one file"}
	}
	if *title != "" && len(files) > 1 {
		return &usageError{"--title goes with one file"}
	}
	ctx, stop := withTimeout(ctx, *timeout)
	defer stop()
	fields := map[string]string{"knowledgeBase": *kb, "title": *title}
	if *force {
		fields["force"] = "true"
	}
	bars := newBars(std, files)
	results := make([]submitted, len(files))
	each(len(files), submitAtOnce, func(i int) {
		results[i] = f.submitOne(ctx, files[i], fields, *wait, func(t task) { bars.set(i, t) })
		bars.end(i, results[i])
	})
	if err := emit(f, results, "FILE\tTASK\tSTATUS\tERROR", submittedRow); err != nil {
		return err
	}
	return worst(results)
}

// submittedRow is a result for people.
func submittedRow(s submitted) string {
	if s.Task == nil {
		return fmt.Sprintf("%s\t-\t-\t%s", clean(s.File), short(s.Error, 120))
	}
	status := s.Task.Status
	if s.Task.Duplicate {
		status += " (was there)"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s", clean(s.File), clean(s.Task.TaskID), clean(status), short(s.Error, 120))
}

// worst is the first file's error, so that its exit code is the command's.
func worst(results []submitted) error {
	for _, r := range results {
		if r.err != nil {
			return fmt.Errorf("%s: %w", r.File, r.err)
		}
	}
	return nil
}

// each runs f for 0 … n−1, at most `at` at a time.
func each(n, at int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, at)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// submitOne sends one file and, when asked, waits for its end.
func (c *common) submitOne(ctx context.Context, path string, fields map[string]string, wait bool, seen func(task)) submitted {
	s := submitted{File: path}
	fail := func(err error) submitted {
		s.err, s.Error = err, err.Error()
		return s
	}
	t, err := c.client().upload(ctx, path, fields)
	if err != nil {
		return fail(err)
	}
	s.Task = &t
	seen(t)
	if !wait {
		return s
	}
	if !t.ended() {
		duplicate := t.Duplicate
		last, err := c.client().watch(ctx, t.TaskID, seen)
		if err != nil {
			return fail(err)
		}
		last.Duplicate = duplicate
		*s.Task = last
	}
	if err := verdict(*s.Task); err != nil {
		return fail(err)
	}
	return s
}

// upload streams one file to the gateway, never whole in memory.
func (c *client) upload(ctx context.Context, path string, fields map[string]string) (t task, err error) {
	file, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return t, &codedError{ExitBadInput, errors.Join(fmt.Errorf("%s is not a regular file", path), err)}
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { w.CloseWithError(writeForm(form, file, filepath.Base(path), fields)) }()
	defer func() { _ = r.Close() }()
	return t, c.do(ctx, http.MethodPost, "/api/knowledge/documents/upload-async", form.FormDataContentType(), r, &t)
}

// writeForm writes the fields and then the file.
func writeForm(form *multipart.Writer, file io.Reader, name string, fields map[string]string) error {
	for k, v := range fields {
		if v == "" {
			continue
		}
		if err := form.WriteField(k, v); err != nil {
			return err
		}
	}
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, file); err != nil {
		return err
	}
	return form.Close()
}
