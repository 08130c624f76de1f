// Package child is the process that reads documents, from its start to its end. Main is the entry point.
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

const (
	// CompileArg is the argument of a process that only compiles the PDF reader, into the folder that the
	// next one names.
	CompileArg = "extract-compile"
	// childSocket is the descriptor of a child's socket to its parent.
	childSocket = 3
	// watchEvery is how often a child checks its memory and its parent where the parent cannot see it.
	watchEvery = 50 * time.Millisecond
	// compileMemoryMB is more than the engine ever takes half of.
	compileMemoryMB = 4096
	// largeFile is the size from which a child returns memory to the system after a file.
	largeFile = 1 << 20
)

// Is tells whether a process with these arguments is a child of a Pool, or `extract-compile DIR`,
// by which the build of an image fills the EXTRACT_CACHE_DIR that it ships.
func Is(args []string) bool {
	return len(args) == 2 && args[1] == frame.ChildArg || len(args) == 3 && args[1] == CompileArg
}

// Main is the whole life of such a process; its result is the exit code.
// A program that makes a Pool calls it before anything else: if child.Is(os.Args) { os.Exit(child.Main()) }.
func Main() int {
	if os.Args[1] == CompileArg {
		p, ok := formats.LinkedPDF()
		if !ok { // an image of a program without PDFs needs no compiled reader
			return 0
		}
		if _, err := p.Compile(os.Args[2], compileMemoryMB); err != nil {
			fmt.Fprintln(os.Stderr, CompileArg+":", err)
			return 1
		}
		return 0
	}
	c, err := newChild()
	if err != nil {
		fmt.Fprintln(os.Stderr, "extract child:", err)
		return 1
	}
	if err := c.serve(); err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "extract child:", err)
		return 1
	}
	return 0
}

// child is the state of a child process.
type childProcess struct {
	conn     *net.UnixConn
	setup    sandbox.Setup
	engine   any // of the reader of PDFs, if it is loaded
	buf      []byte
	reported time.Time
}

// newChild connects to the parent, loads what it will need, confines itself and says so.
func newChild() (*childProcess, error) {
	socket := os.NewFile(childSocket, "parent")
	conn, err := net.FileConn(socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the parent: %w", err)
	}
	_ = socket.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("connect to the parent: %T is no unix socket", conn)
	}
	c := &childProcess{conn: unixConn}
	kind, payload, err := frame.Read(c.conn, nil)
	if err != nil || kind != frame.KindSetup {
		return nil, fmt.Errorf("read the setup: %w", errors.Join(frame.ErrBad, err))
	}
	if err := json.Unmarshal(payload, &c.setup); err != nil {
		return nil, fmt.Errorf("read the setup: %w", err)
	}
	debug.SetMemoryLimit(int64(c.setup.MemoryMB) << 20 * 3 / 4)
	if !sandbox.SeenFromOutside {
		go watchSelf(sandbox.MaxResident(c.setup.MemoryMB), os.Getppid())
	}
	var greeting sandbox.Hello
	if err := c.load(); err != nil {
		greeting = sandbox.Hello{Problem: err.Error(), Fatal: true, Unloaded: true}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			greeting.Errno = int(errno)
		}
	} else {
		greeting = sandbox.Confine(c.setup)
	}
	greeting.Readers = formats.Fingerprint()
	if err := frame.WriteJSON(c.conn, frame.KindHello, greeting); err != nil {
		return nil, err
	}
	if greeting.Fatal {
		return nil, errors.New(greeting.Problem)
	}
	return c, nil
}

// watchSelf ends the process once it is overgrown. Its parent reads the reason from its stderr.
func watchSelf(bytes int64, parent int) {
	for range time.Tick(watchEvery) {
		if why := sandbox.Overgrown(bytes, parent); why != "" {
			fmt.Fprintln(os.Stderr, "extract child:", why)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
}

// load compiles the PDF reader, which needs files and executable memory, before the doors are shut.
func (c *childProcess) load() error {
	if !c.setup.PDF {
		return nil
	}
	p, ok := formats.LinkedPDF()
	if !ok {
		return formats.ErrNoPDF
	}
	var err error
	c.engine, err = p.Compile(c.setup.CacheDir, c.setup.MemoryMB)
	return err
}

// serve reads one document after the other until the parent closes the socket.
func (c *childProcess) serve() error {
	if c.setup.Warm {
		return nil
	}
	for {
		j, file, err := c.next()
		if err != nil {
			return err
		}
		err = c.read(j, file)
		_ = file.Close()
		if err != nil {
			return err
		}
		if j.Size > largeFile {
			debug.FreeOSMemory()
		}
	}
}

// next waits for a job and its descriptor.
func (c *childProcess) next() (frame.Job, *os.File, error) {
	head, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(head, oob)
	if err != nil {
		return frame.Job{}, nil, err
	}
	if n == 0 {
		return frame.Job{}, nil, io.EOF
	}
	file, err := passedFile(oob[:oobn])
	if err != nil {
		return frame.Job{}, nil, err
	}
	kind, payload, err := frame.Read(io.MultiReader(bytes.NewReader(head), c.conn), c.buf)
	if err != nil {
		return frame.Job{}, nil, err
	}
	c.buf = payload
	var j frame.Job
	if err := json.Unmarshal(payload, &j); err != nil || kind != frame.KindJob {
		return frame.Job{}, nil, errors.Join(frame.ErrBad, err)
	}
	return j, file, nil
}

// passedFile takes the descriptor out of a control message.
func passedFile(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("a job without a file"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(errors.New("a job without a file"), err)
	}
	return os.NewFile(uintptr(fds[0]), "document"), nil
}

// read reads one document and sends blocks, progress and the verdict.
func (c *childProcess) read(j frame.Job, file *os.File) error {
	out := bufio.NewWriterSize(c.conn, frame.BufferBytes)
	in := &document.Input{File: file, Size: j.Size, MediaType: j.MediaType, Limits: j.Limits, Engine: c.engine}
	in.Progress = func(done, total int) {
		if now := time.Now(); now.Sub(c.reported) >= document.ProgressEvery || done == total {
			c.reported = now
			// A failed write shows at the next block or at the verdict.
			_ = frame.Write(out, frame.KindProgress, frame.EncodeProgress(done, total))
			_ = out.Flush()
		}
	}
	if j.Limits.OCR {
		in.Recognize = func(picture *image.Gray) (string, error) { return c.recognize(out, picture) }
	}
	if j.Files {
		in.Carry = func(name string, data []byte) error { return carry(out, name, data) }
	}
	var buf []byte
	ex, err := formats.ReadGuarded(context.Background(), in, func(b ingest.Block) error {
		buf = frame.EncodeBlock(buf[:0], b)
		return frame.Write(out, frame.KindBlock, buf)
	})
	if err := frame.WriteJSON(out, frame.KindDone, verdictOf(ex, err, in.Tainted)); err != nil {
		return err
	}
	return out.Flush()
}

// carry sends a file that a message carries.
func carry(out *bufio.Writer, name string, data []byte) error {
	if err := frame.Write(out, frame.KindFile, frame.EncodeFile(len(data), name)); err != nil {
		return err
	}
	for piece := range slices.Chunk(data, document.MaxBlockBytes) {
		if err := frame.Write(out, frame.KindBytes, piece); err != nil {
			return err
		}
	}
	return nil
}

// recognize sends a picture to the parent and waits for its text.
func (c *childProcess) recognize(out *bufio.Writer, picture *image.Gray) (string, error) {
	width, height := picture.Rect.Dx(), picture.Rect.Dy()
	if width > document.MaxPictureSide || height > document.MaxPictureSide || width*height > document.MaxPicturePixels {
		return "", fmt.Errorf("a picture of %d × %d points is too large for the text recognition", width, height)
	}
	if err := frame.Write(out, frame.KindPicture, frame.EncodePicture(width, height)); err != nil {
		return "", err
	}
	for row := range height {
		line := picture.Pix[row*picture.Stride:][:width]
		if err := frame.Write(out, frame.KindPixels, line); err != nil {
			return "", err
		}
	}
	if err := out.Flush(); err != nil {
		return "", err
	}
	kind, payload, err := frame.Read(c.conn, nil)
	if err != nil || kind != frame.KindText || len(payload) == 0 {
		return "", errors.Join(frame.ErrBad, err)
	}
	if payload[0] != 0 {
		return "", errors.New(string(payload[1:]))
	}
	return string(payload[1:]), nil
}

// verdictOf puts the end of a job into words.
func verdictOf(ex ingest.Extraction, err error, recycle bool) frame.Verdict {
	v := frame.Verdict{Extraction: ex, Recycle: recycle}
	if err == nil {
		return v
	}
	f := ingest.AsFailure(err)
	v.Code, v.Permanent, v.Remedy, v.Error = f.Code, f.Permanent, frame.Shorten(f.Remedy), frame.Shorten(err.Error())
	if crash, ok := errors.AsType[*formats.CrashError](err); ok {
		v.Stack, v.Recycle = frame.Shorten(string(crash.Stack)), true
	}
	return v
}
