package extract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// Text recognition. A child may start no program, and a program that decodes pictures would be one more that a hostile file can take over.
// So the child renders the page, or decodes the picture, and sends plain pixels; the parent gives them to tesseract as the simplest of all
// picture formats, whose head it writes itself, and returns the text to the child, which goes on with its page.

const (
	// recognisedBytes bounds the text of one picture.
	recognisedBytes = document.MaxBlockBytes - 1
	// listTimeout is the longest time of asking tesseract for its languages.
	listTimeout = 30 * time.Second
)

// tesseract is the program that is installed.
type tesseract struct {
	path      string
	languages string
	memoryMB  int
	timeout   time.Duration
	starter   *starter
	sandbox   sandbox.Setup
}

// newTesseract finds the program and checks that it has the languages.
func newTesseract(cfg Config, s *starter) (*tesseract, error) {
	path, err := exec.LookPath("tesseract")
	if err != nil {
		return nil, fmt.Errorf("EXTRACT_OCR: install tesseract (tesseract-ocr): %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	listed, err := exec.CommandContext(ctx, path, "--list-langs").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("EXTRACT_OCR: ask tesseract for its languages: %w", err)
	}
	known := strings.Fields(string(listed))
	for language := range strings.SplitSeq(cfg.Languages, "+") {
		if !slices.Contains(known, language) {
			return nil, fmt.Errorf("EXTRACT_OCR_LANGUAGES: tesseract has no data for %q: install tesseract-ocr-%s", language, strings.ReplaceAll(language, "_", "-"))
		}
	}
	return &tesseract{
		path: path, languages: cfg.Languages, memoryMB: cfg.MemoryMB, timeout: cfg.TimeoutSmall, starter: s, sandbox: sandbox.Setup{Sandbox: cfg.Sandbox},
	}, nil
}

// recognition is one picture that is being read.
type recognition struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *cappedText
	stderr *lastWords
	failed error // of writing pixels
	keep   func() bool
	timer  *time.Timer
	ended  atomic.Bool // its number may belong to another process by now
}

// start runs the program, in a group and, where the system allows it, namespaces of its own. It ends with ctx or after the timeout.
func (t *tesseract) start(ctx context.Context, width, height int) (*recognition, error) {
	r := &recognition{out: &cappedText{}, stderr: &lastWords{}}
	_, err := t.starter.start(t.sandbox, func(attr *syscall.SysProcAttr) (err error) {
		// One uniform block of text: measured, it keeps the words of Chinese together.
		r.cmd = exec.Command(t.path, "stdin", "stdout", "-l", t.languages, "--psm", "6") //nolint:noctx // ended by its group
		r.cmd.Env, r.cmd.Dir, r.cmd.SysProcAttr = []string{"OMP_THREAD_LIMIT=1", "LC_ALL=C"}, "/", attr
		r.cmd.Stdout, r.cmd.Stderr = r.out, r.stderr
		if r.in, err = r.cmd.StdinPipe(); err != nil {
			return err
		}
		return r.cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("start tesseract: %w", err)
	}
	r.keep = context.AfterFunc(ctx, r.kill)
	r.timer = time.AfterFunc(t.timeout, r.kill)
	// It has seen nothing of the document yet.
	if err := limitMemory(r.cmd.Process.Pid, t.memoryMB); err != nil {
		r.kill()
		_, _ = r.end()
		return nil, fmt.Errorf("start tesseract: %w", err)
	}
	r.write([]byte(fmt.Sprintf("P5 %d %d 255\n", width, height)))
	return r, nil
}

// write passes pixels on. What a program that has ended does not take is dropped.
func (r *recognition) write(pixels []byte) {
	if r.failed == nil {
		_, r.failed = r.in.Write(pixels)
	}
}

func (r *recognition) kill() {
	if !r.ended.Load() {
		_ = unix.Kill(-r.cmd.Process.Pid, unix.SIGKILL)
	}
}

// end waits for the text.
func (r *recognition) end() (string, error) {
	_ = r.in.Close()
	err := r.cmd.Wait()
	r.ended.Store(true)
	r.keep()
	inTime := r.timer.Stop()
	switch {
	case err != nil && !inTime:
		return "", errors.New("the text recognition took too long")
	case err != nil:
		return "", fmt.Errorf("the text recognition failed: %w (%s)", err, r.stderr)
	}
	return spacesInHan.ReplaceAllStringFunc(strings.ToValidUTF8(string(r.out.text), ""), func(gap string) string {
		return strings.ReplaceAll(gap, " ", "")
	}), nil
}

// spacesInHan are Chinese characters with spaces between them, as models of several languages give them.
var spacesInHan = regexp.MustCompile(`[\p{Han}，。、；：？！](?: +[\p{Han}，。、；：？！])+`)

// cappedText keeps the beginning of what is written.
type cappedText struct{ text []byte }

// Write implements io.Writer.
func (c *cappedText) Write(p []byte) (int, error) {
	c.text = append(c.text, p[:min(len(p), recognisedBytes-len(c.text))]...)
	return len(p), nil
}

// picture takes the pixels that follow and returns their text to the child.
func (r *jobRun) picture(ctx context.Context, payload []byte, dog *watchdog) error {
	width, height, err := frame.DecodePicture(payload)
	if err != nil {
		return err
	}
	if r.pool.ocr == nil {
		return fmt.Errorf("%w: a picture that nobody asked for", frame.ErrBad)
	}
	if r.pictures++; r.pictures > r.job.Limits.MaxPages {
		return document.OverLimit("more than %d pictures to recognise", r.job.Limits.MaxPages)
	}
	rec, startErr := r.pool.ocr.start(ctx, width, height)
	for left := width * height; left > 0; {
		kind, pixels, err := frame.Read(r.worker.in, r.worker.buf)
		if err == nil && (kind != frame.KindPixels || len(pixels) == 0 || len(pixels) > left) {
			err = fmt.Errorf("%w: pixels", frame.ErrBad)
		}
		if err != nil {
			if startErr == nil {
				rec.kill()
				_, _ = rec.end()
			}
			return err
		}
		r.worker.buf = pixels
		left -= len(pixels)
		if startErr == nil {
			rec.write(pixels)
		}
	}
	text, err := "", startErr
	if err == nil {
		dog.emitting.Store(true) // the child waits
		text, err = rec.end()
		dog.emitting.Store(false)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	reply := append([]byte{0}, text...)
	if err != nil {
		r.pool.log.WarnContext(ctx, "extract: text recognition failed", "err", err)
		reply = append([]byte{1}, frame.Shorten(err.Error())...)
	}
	return frame.Write(r.worker.conn, frame.KindText, reply)
}

var languageNames = regexp.MustCompile(`^[A-Za-z0-9_]{2,40}(\+[A-Za-z0-9_]{2,40}){0,15}$`)

// validOCR names what is wrong with the languages.
func validOCR(languages string) error {
	if !languageNames.MatchString(languages) {
		return fmt.Errorf("EXTRACT_OCR_LANGUAGES: %q is no list of languages like eng+chi_sim", languages)
	}
	return nil
}
