package extract

import (
	"context"
	"fmt"
	"io"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
)

const (
	// maxCarriedFiles is more than any reader gives away of one message or mailbox.
	maxCarriedFiles = 1000
	// carriedFree is what the files of a message may have beyond its own size: streams of an Outlook message may share their bytes.
	carriedFree = 64 << 20
)

// Attachments implements ingest.Extractor. The message is taken apart in a child, which writes the bytes of its files to the parent.
func (p *Pool) Attachments(ctx context.Context, src ingest.Source, progress func(done, total int), visit func(name string, r io.Reader) error) error {
	info, err := src.File.Stat()
	if err != nil {
		return fmt.Errorf("stat the stored file: %w", err)
	}
	mediaType, err := p.cfg.Accept.File(src.File, info.Size(), src.Name)
	if err != nil {
		return err
	}
	r, ok := formats.For(mediaType)
	if !ok || !ingest.CarriesFiles(mediaType) {
		return document.Unsupported("%s is no message", mediaType)
	}
	if err := p.enter(ctx, progress); err != nil {
		return err
	}
	defer func() { <-p.slots }()
	w, err := p.acquire(ctx, noPDF)
	if err != nil {
		return err
	}
	defer p.busy.Done()
	run := &jobRun{
		pool: p, worker: w, reader: r, progress: progress, visit: visit,
		emit: func(ingest.Block) error { return fmt.Errorf("%w: a block, where files are wanted", frame.ErrBad) },
		job:  frame.Job{MediaType: mediaType, Size: info.Size(), Limits: p.cfg.limits(), Files: true},
	}
	_, err = run.do(ctx, src.File)
	p.release(w, run)
	return err
}

// file lets the receiver read a file that the child sends, and reads what that leaves.
func (r *jobRun) file(payload []byte, dog *watchdog) error {
	size, name, err := frame.DecodeFile(payload)
	if err != nil {
		return err
	}
	r.files++
	r.carried += size
	if r.visit == nil || r.files > maxCarriedFiles || r.carried > r.job.Size+carriedFree {
		return fmt.Errorf("%w: file %d of a message of %d bytes, which makes %d", frame.ErrBad, r.files, r.job.Size, r.carried)
	}
	f := &carriedFile{run: r, dog: dog, left: size}
	dog.emitting.Store(true)
	err = r.visit(name, f)
	dog.emitting.Store(false)
	if f.err != nil {
		return f.err
	}
	if err != nil {
		return &receiverError{err}
	}
	_, err = io.Copy(io.Discard, f)
	dog.emitting.Store(false)
	return err
}

// carriedFile reads the frames of one file. Its receiver's time does not count as the child's.
type carriedFile struct {
	run   *jobRun
	dog   *watchdog
	left  int64 // bytes in frames to come
	piece []byte
	err   error // of the child
}

// Read implements io.Reader.
func (f *carriedFile) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	if len(f.piece) == 0 {
		if f.left == 0 {
			return 0, io.EOF
		}
		if f.err = f.next(); f.err != nil {
			return 0, f.err
		}
	}
	n := copy(p, f.piece)
	f.piece = f.piece[n:]
	return n, nil
}

// next reads a frame.
func (f *carriedFile) next() error {
	f.dog.emitting.Store(false)
	defer f.dog.emitting.Store(true)
	w := f.run.worker
	kind, payload, err := frame.Read(w.in, w.buf)
	if err != nil {
		return err
	}
	w.buf = payload
	if kind != frame.KindBytes || len(payload) == 0 || int64(len(payload)) > f.left {
		return fmt.Errorf("%w: %d bytes of type %q in a file that lacks %d", frame.ErrBad, len(payload), kind, f.left)
	}
	f.left -= int64(len(payload))
	f.piece = payload
	return nil
}
