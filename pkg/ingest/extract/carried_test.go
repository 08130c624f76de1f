//go:build !race

// One file after another is read, by a child or in the process: nothing runs beside another that the race detector could see.

package extract

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
)

// mailOf is a message with attachments (name, content, …).
func mailOf(files ...string) string {
	s := "From: a@b.example\r\nTo: c@d.example\r\nSubject: s\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nthe text\r\n"
	for i := 0; i < len(files); i += 2 {
		s += "--b\r\nContent-Disposition: attachment; filename=\"" + files[i] + "\"\r\n\r\n" + files[i+1] + "\r\n"
	}
	return s + "--b--\r\n"
}

// carriedBy opens a message and visits its attachments.
func carriedBy(t *testing.T, p *Pool, message string, visit func(name string, r io.Reader) error) error {
	t.Helper()
	f, err := os.Open(extracttest.WriteTemp(t, "a.eml", []byte(message)))
	require.NoError(t, err)
	defer f.Close()
	return p.Attachments(t.Context(), ingest.Source{File: f, Name: "a.eml"}, nil, visit)
}

// The bytes of attachments come out of a child whole, also when the receiver reads some of a file or none, and it reads on afterwards.
func TestAttachmentsComeOutOfAChild(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	huge := strings.Repeat("a line of a large file\r\n", 300_000)
	message := mailOf("huge.txt", huge, "same.txt", "1", "same.txt", "2", "left.txt", huge, "last.txt", "3")
	var got []string
	require.NoError(t, carriedBy(t, p, message, func(name string, r io.Reader) error {
		if name == "left.txt" {
			_, err := io.CopyN(io.Discard, r, 100_000)
			return err
		}
		data, err := io.ReadAll(r)
		got = append(got, name, string(data))
		return err
	}))
	require.Equal(t, []string{"huge.txt", huge, "same.txt", "1", "same.txt", "2", "last.txt", "3"}, got)
	full := errors.New("disk full")
	require.ErrorIs(t, carriedBy(t, p, message, func(string, io.Reader) error { return full }), full)
	var many []string
	for range 5000 {
		many = append(many, "", "x")
	}
	count := 0
	require.NoError(t, carriedBy(t, p, mailOf(many...), func(string, io.Reader) error {
		count++
		return nil
	}))
	require.Equal(t, maxCarriedFiles, count)
	err := carriedBy(t, p, "only text", func(string, io.Reader) error { return nil })
	extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.eml", []byte(mailOf())))
	require.NoError(t, err)
	require.Contains(t, extracttest.Joined(blocks), "the text", "the pool reads on")
}

// What a child writes that a document took over is refused: more than it said, other frames in between, too many files, too many bytes.
func TestAChildThatLiesAboutFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		head   []byte
		frames func(*bytes.Buffer)
		before int
	}{
		"no size":            {head: []byte("x")},
		"a long name":        {head: append(frame.EncodeFile(1, ""), strings.Repeat("x", 5000)...)},
		"an enormous size":   {head: frame.EncodeFile(1<<41, "x")},
		"more than it may":   {head: frame.EncodeFile(carriedFree+101, "x")},
		"one file too many":  {head: frame.EncodeFile(0, "x"), before: maxCarriedFiles},
		"it ends":            {head: frame.EncodeFile(5, "x")},
		"more than it said":  {head: frame.EncodeFile(5, "x"), frames: func(b *bytes.Buffer) { _ = frame.Write(b, frame.KindBytes, []byte("123456")) }},
		"nothing, for ever":  {head: frame.EncodeFile(5, "x"), frames: func(b *bytes.Buffer) { _ = frame.Write(b, frame.KindBytes, nil) }},
		"a block in between": {head: frame.EncodeFile(5, "x"), frames: func(b *bytes.Buffer) { _ = frame.Write(b, frame.KindBlock, []byte("12345")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if c.frames != nil {
				c.frames(&b)
			}
			run := &jobRun{worker: &worker{in: bufio.NewReader(&b)}, job: frame.Job{Size: 100}, files: c.before}
			run.visit = func(_ string, r io.Reader) error {
				_, err := io.ReadAll(r)
				return err
			}
			err := run.file(c.head, &watchdog{})
			require.Error(t, err)
			require.True(t, errors.Is(err, frame.ErrBad) || errors.Is(err, io.EOF), fmt.Sprint(err))
			require.NotErrorAs(t, err, new(*receiverError), "it is the child's fault")
		})
	}
	run := &jobRun{worker: &worker{}, job: frame.Job{Size: 100}}
	require.ErrorIs(t, run.file(frame.EncodeFile(0, "x"), &watchdog{}), frame.ErrBad, "nobody asked for files")
}
