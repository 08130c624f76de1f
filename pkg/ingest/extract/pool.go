// Package extract reads documents: a Pool turns their bytes into blocks of text. Package detect tells what a
// file is.
//
// Every reader runs in a resident child process without files, network or environment of its own (package
// child), because a hostile document can overflow Go's stack or exhaust its memory, and neither can be
// recovered in process. The parent opens the file, names the reader, passes the descriptor, and treats what
// comes back as an attacker's data.
//
// What stands between a child that a document took over and the rest, outermost first:
//   - namespaces of its own for users, network, IPC, mounts and processes, where the system gives them (process.go);
//   - limits of the kernel: no file grows, no core, few descriptors, memory (package sandbox);
//   - landlock without any rule: no file by name, no port, no signal to others;
//   - a list of system calls: no new descriptor, process or code, and no way to loosen any of this (sandbox/seccomp_linux.go);
//   - the parent, which counts what comes back and kills over time, memory or threads (jobrun.go, watchdog.go).
//
// PDF_ENGINE=native has another program, pdf-reader, as the child for PDFs (native.go, design D30): there the two layers in the middle are a
// must, and a document whose child ends abnormally is read again in a child of the program itself.
//
// On macOS there are the kernel's limits and the parent alone: a child watches its memory and its parent by itself (child.watchSelf).
//
// EXTRACT_SANDBOX=require refuses to read without landlock and the list of calls; the log's "sandbox ready"
// and ingest_extract_sandbox_layer say what is in force.
//
// Packages, from below: document (input, sink, failures) · charset, archive · detect · one for each format:
// pdf (with its engines wasm and native), docx, html, markdown, plaintext, … · formats (all of them) · frame (the protocol) and sandbox · child ·
// extract. The parent alone reaches out: it runs the text recognition on pixels that a child drew (ocr.go), and has
// documents converted by a service whose page a child reads (foreign.go, external). A new format is a package here and a line in formats.
package extract

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/external"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// waitReport is how often a document that waits for a child says so.
const waitReport = 10 * time.Second

// ErrClosed is the answer of a Pool after Close.
var ErrClosed = errors.New("the pool of document readers is closed")

// Stats tells what a Pool's children did since its start.
type Stats struct {
	Live      int   // children alive now
	Started   int   // children started
	Killed    int   // of them, killed over a limit or at an end of the context
	PeakBytes int64 // the largest resident size that any child reached
	Native    bool  // PDFs are read by the native reader
	Repeated  int   // documents that were read again in WebAssembly

	// What the newest child that reads documents is confined by; false before the first.
	Landlock, Seccomp, Namespaces bool
}

// Pool reads documents in resident child processes. It implements ingest.Extractor and is safe for concurrent
// use: calls beyond EXTRACT_PARALLEL wait. Children start when they are needed and end when they idle.
type Pool struct {
	cfg      Config
	without  []sandbox.Layer // left out by a test
	log      *slog.Logger
	cacheDir string // of the compiled PDF reader; the first Warm may replace it
	ownCache bool   // cacheDir is temporary and goes with the pool
	starter  *starter
	slots    chan struct{}
	native   bool             // PDFs are read natively
	ocr      *tesseract       // nil: no text recognition
	external *external.Client // nil: no service converts documents

	warm     chan struct{} // full: somebody makes the cache, or looks at warmed
	warmed   bool
	mu       sync.Mutex // guards what follows
	idle     []*worker
	stats    Stats
	greeted  bool
	failed   *sandbox.Setup // a start that failed for want of resources; nil: none
	closed   bool
	busy     sync.WaitGroup
	reap     chan struct{}
	reapDone chan struct{}
}

var _ ingest.Extractor = (*Pool)(nil)

// NewPool makes a pool; no child starts before the first document or Warm. Close it.
// Errors: those of Config.Validate, that no cache folder can be made, or that tesseract or the native reader of PDFs is not there.
func NewPool(cfg Config, log *slog.Logger) (*Pool, error) { return newPoolWithout(cfg, log, nil) }

// newPoolWithout leaves layers of the children's sandbox out, for tests.
func newPoolWithout(cfg Config, log *slog.Logger, without []sandbox.Layer) (*Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	dir, own, err := cacheFolder(cfg.CacheDir)
	if err != nil {
		return nil, err
	}
	p := &Pool{
		cfg: cfg, without: without, log: log, cacheDir: dir, ownCache: own, starter: newStarter(),
		slots: make(chan struct{}, cfg.Parallel), warm: make(chan struct{}, 1), reap: make(chan struct{}), reapDone: make(chan struct{}),
	}
	if cfg.Accept.On() {
		if p.external, err = external.New(cfg.Accept.Kind, cfg.External.URL, cfg.External.Key, 2*cfg.MaxTextBytes); err != nil {
			p.starter.stop()
			return nil, err
		}
	}
	if cfg.Accept.OCR == detect.Tesseract {
		if p.ocr, err = newTesseract(cfg, p.starter); err != nil {
			p.starter.stop()
			return nil, err
		}
	}
	if err := p.startNative(); err != nil {
		p.starter.stop()
		return nil, err
	}
	go p.reapIdle()
	return p, nil
}

// Fingerprint implements ingest.Extractor.
func (p *Pool) Fingerprint() string { return p.fingerprint() + p.cfg.choices() }

// Stats tells what the children did so far.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Native = p.native
	return s
}

// warmSetup is that of the child that compiles the PDF reader.
// Compiling takes 300 MB once; the limits of reading do not hold for it, as no document is read.
func (p *Pool) warmSetup() sandbox.Setup {
	p.mu.Lock() // another document's Warm may be replacing the folder
	defer p.mu.Unlock()
	return sandbox.Setup{PDF: true, Warm: true, CacheDir: p.cacheDir, MemoryMB: 4096, Sandbox: sandbox.Off}
}

// Warm compiles the PDF reader into the cache, in a process of its own (3–6 s cold, 0.3 s when it is there
// already), and proves that a child can start with the sandbox that is asked for. It is called at a service's
// start; a first PDF calls it otherwise. It ends with ctx: a service that stops does not wait for the
// compiler.
func (p *Pool) Warm(ctx context.Context) error {
	select {
	case p.warm <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.warm }()
	if p.warmed {
		return nil
	}
	var err error
	if _, pdf := formats.LinkedPDF(); pdf {
		err = p.compile(ctx)
	}
	if err == nil {
		err = p.tryStart(ctx, sandbox.Setup{Warm: true, MemoryMB: p.cfg.MemoryMB, Sandbox: p.cfg.Sandbox, Without: p.without})
	}
	if err != nil {
		return fmt.Errorf("warm the document readers: %w", err)
	}
	p.warmed = true
	return nil
}

// compile compiles the PDF reader into the cache, or finds it there. A folder that cannot be written, as an
// image's, may hold code for another processor only: then a temporary folder takes its place. The caller
// holds p.warm.
func (p *Pool) compile(ctx context.Context) error {
	set := p.warmSetup()
	err := p.tryStart(ctx, set)
	if err == nil || ctx.Err() != nil || unix.Access(p.cacheDir, unix.W_OK) == nil {
		return err
	}
	dir, own, mkErr := temporaryFolder()
	if mkErr != nil {
		return errors.Join(err, mkErr)
	}
	p.log.WarnContext(ctx, "the compiled pdf reader of a folder that cannot be written does not fit this machine: compiling it into a temporary one",
		"EXTRACT_CACHE_DIR", p.cacheDir, "temporary", dir, "err", err)
	p.mu.Lock()
	p.cacheDir, p.ownCache = dir, own
	p.mu.Unlock()
	set.CacheDir = dir
	return p.tryStart(ctx, set)
}

// tryStart starts a child that reads nothing and ends it.
func (p *Pool) tryStart(ctx context.Context, set sandbox.Setup) error {
	w, err := startWorker(ctx, p.starter, set)
	if err != nil {
		return err
	}
	p.noteHello(w, set)
	w.kill()
	return nil
}

// Extract implements ingest.Extractor. A child that dies, is killed over time or memory, or crashes, is
// EXTRACT_CRASHED, which a later attempt may cure. A PDF is ingest.ErrElsewhere where no reader of PDFs is linked.
func (p *Pool) Extract(ctx context.Context, src ingest.Source, progress func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	ex, err := p.extract(ctx, src, progress, emit)
	if err == nil {
		ex.Reader += p.cfg.choices()
	}
	return ex, err
}

func (p *Pool) extract(ctx context.Context, src ingest.Source, progress func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	info, err := src.File.Stat()
	if err != nil {
		return ingest.Extraction{}, fmt.Errorf("stat the stored file: %w", err)
	}
	mediaType, err := p.cfg.Accept.File(src.File, info.Size(), src.Name)
	if err != nil {
		return ingest.Extraction{}, err
	}
	if p.cfg.Accept.Converts(mediaType) {
		return p.extractForeign(ctx, src.File, mediaType, info.Size(), progress, emit)
	}
	r, ok := formats.For(mediaType)
	if !ok {
		return ingest.Extraction{}, document.Unsupported("no reader for %s", mediaType)
	}
	_, pdf := formats.LinkedPDF()
	if mediaType == document.TypePDF && !pdf {
		return ingest.Extraction{}, fmt.Errorf("%w: %w", ingest.ErrElsewhere, formats.ErrNoPDF)
	}
	if err := p.enter(ctx, progress); err != nil {
		return ingest.Extraction{}, err
	}
	defer func() { <-p.slots }()
	return p.read(ctx, src.File, frame.Job{MediaType: mediaType, Size: info.Size(), Limits: p.cfg.limits()}, r, progress, emit)
}

// read runs a job in a child; the caller holds a slot.
func (p *Pool) read(ctx context.Context, file *os.File, job frame.Job, r formats.Reader, progress func(done, total int), emit func(ingest.Block) error) (ex ingest.Extraction, err error) {
	_, pdf := formats.LinkedPDF()
	switch {
	case !pdf || !r.NeedsPDF(file, job.Size):
		ex, err = p.readIn(ctx, noPDF, file, job, r, progress, emit)
	case p.native:
		ex, err = p.readNative(ctx, file, job, r, progress, emit)
	default:
		ex, err = p.readIn(ctx, wasmPDF, file, job, r, progress, emit)
	}
	if err == nil {
		ex.Reader = p.version(r)
	}
	return ex, err
}

// readIn runs a job in a child that has an engine.
func (p *Pool) readIn(ctx context.Context, has engine, file *os.File, job frame.Job, r formats.Reader, progress func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	w, err := p.acquire(ctx, has)
	if err != nil {
		return ingest.Extraction{}, err
	}
	defer p.busy.Done()
	run := &jobRun{pool: p, worker: w, reader: r, progress: progress, emit: emit, job: job}
	ex, err := run.do(ctx, file)
	p.release(w, run)
	return ex, err
}

// enter waits for one of the slots. Meanwhile it reports that nothing is done yet: who only waits must not
// fail as stalled.
func (p *Pool) enter(ctx context.Context, progress func(done, total int)) error {
	ticker := time.NewTicker(waitReport)
	defer ticker.Stop()
	for {
		select {
		case p.slots <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if progress != nil {
				progress(0, 0)
			}
		}
	}
}

// acquire finds an idle child that can read the document, or starts one.
// A child with a PDF reader reads everything; one without makes room for one with it.
func (p *Pool) acquire(ctx context.Context, has engine) (*worker, error) {
	if has == wasmPDF {
		if err := p.Warm(ctx); err != nil {
			return nil, p.startFailure(ctx, err, p.warmSetup())
		}
	}
	found, evicted, err := p.choose(has)
	if err != nil {
		return nil, err
	}
	if found != nil {
		return found, nil
	}
	if evicted != nil {
		evicted.kill()
	}
	set := p.setup(has)
	w, err := startWorker(ctx, p.starter, set)
	if err != nil {
		p.mu.Lock()
		p.stats.Live--
		p.mu.Unlock()
		p.busy.Done()
		return nil, p.startFailure(ctx, err, set)
	}
	p.noteHello(w, set)
	return w, nil
}

// choose takes an idle child, or makes room for a new one, whose place it counts; evicted, if any, must be
// killed.
func (p *Pool) choose(has engine) (found, evicted *worker, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	p.busy.Add(1)
	p.dropDead()
	at := slices.IndexFunc(p.idle, func(w *worker) bool { return w.has == has })
	if at < 0 && has == noPDF && len(p.idle) > 0 {
		at = 0
	}
	if at >= 0 {
		found = p.idle[at]
		p.idle = slices.Delete(p.idle, at, at+1)
		return found, nil, nil
	}
	if p.stats.Live >= p.cfg.Parallel && len(p.idle) > 0 {
		evicted = p.idle[0]
		p.idle = p.idle[1:]
		p.stats.Live--
	}
	p.stats.Live++
	p.stats.Started++
	return nil, evicted, nil
}

// dropDead forgets idle children that the system ended; mu is held.
func (p *Pool) dropDead() {
	p.idle = slices.DeleteFunc(p.idle, func(w *worker) bool {
		select {
		case <-w.exited:
			_ = w.conn.Close()
			p.stats.Live--
			return true
		default:
			return false
		}
	})
}

// Fit returns nil unless a child could not start for want of the machine's resources and still cannot.
func (p *Pool) Fit(ctx context.Context) error {
	p.mu.Lock()
	failed := p.failed
	p.mu.Unlock()
	if failed == nil {
		return nil
	}
	w, err := startWorker(ctx, p.starter, *failed)
	if err != nil {
		if ctx.Err() == nil && !lacks(err) { // what is wrong now is no lack: documents will say it
			p.noteFailed(nil)
			return nil
		}
		return fmt.Errorf("start a document reader: %w", err)
	}
	w.kill()
	p.noteFailed(nil)
	return nil
}

// noteFailed remembers which start failed for want of resources; nil: none.
func (p *Pool) noteFailed(set *sandbox.Setup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = set
}

// lacks reports whether a start failed for want of what the machine or the process should have. No document
// was read by then.
func lacks(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOSPC, syscall.EDQUOT,
		syscall.EIO, syscall.EROFS, syscall.EACCES}, func(lack syscall.Errno) bool { return errors.Is(err, lack) })
}

// startFailure is a child that could not start. Want of resources is the process's fault and no attempt of
// the document; for the rest a later attempt may find the machine in better shape.
func (p *Pool) startFailure(ctx context.Context, err error, set sandbox.Setup) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if lacks(err) {
		p.noteFailed(&set)
		return fmt.Errorf("%w: start a document reader: %w", ingest.ErrProcess, err)
	}
	return ingest.Transient(ingest.CodeExtractCrashed, "start a document reader: %w", err)
}

// noteHello remembers what confinement the children have, and logs it once.
func (p *Pool) noteHello(w *worker, set sandbox.Setup) {
	if set.Warm && set.PDF {
		return // it reads no document
	}
	p.mu.Lock()
	first := !p.greeted
	p.greeted = true
	p.stats.Landlock, p.stats.Seccomp, p.stats.Namespaces = w.hello.Landlock > 0, w.hello.Seccomp, w.isolated
	p.mu.Unlock()
	if !first {
		return
	}
	attrs := []any{slog.String("sandbox", string(p.cfg.Sandbox)), slog.Int("landlock_abi", w.hello.Landlock),
		slog.Bool("seccomp", w.hello.Seccomp), slog.Bool("namespaces", w.isolated)}
	if refused := p.starter.refused.Load(); refused != nil {
		attrs = append(attrs, slog.String("namespaces_refused", (*refused).Error()))
	}
	if w.hello.Problem != "" {
		p.log.Warn("extract: sandbox incomplete", append(attrs, slog.String("problem", w.hello.Problem))...)
		return
	}
	p.log.Info("extract: sandbox ready", attrs...)
}

// release keeps a child for the next document, unless it should not read another.
func (p *Pool) release(w *worker, run *jobRun) {
	w.files++
	keep := run.clean && w.files < p.cfg.ChildFiles && residentBytes(w.cmd.Process.Pid) < int64(p.cfg.MemoryMB)*sandbox.MemoryFactor<<20*3/4
	p.mu.Lock()
	p.stats.PeakBytes = max(p.stats.PeakBytes, run.peak)
	if run.killed {
		p.stats.Killed++
	}
	keep = keep && !p.closed
	if keep {
		w.idleAt = time.Now()
		p.idle = append(p.idle, w)
	} else {
		p.stats.Live--
	}
	p.mu.Unlock()
	if !keep {
		w.kill()
	}
}

// reapIdle ends children that idled for long.
func (p *Pool) reapIdle() {
	defer close(p.reapDone)
	tick := time.NewTicker(max(p.cfg.IdleTimeout/4, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.reap:
			return
		case now := <-tick.C:
			for _, w := range p.takeIdle(now.Add(-p.cfg.IdleTimeout)) {
				w.kill()
			}
		}
	}
}

// takeIdle removes the children that idle since before a time.
func (p *Pool) takeIdle(before time.Time) []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	var old []*worker
	p.idle = slices.DeleteFunc(p.idle, func(w *worker) bool {
		if w.idleAt.After(before) {
			return false
		}
		old = append(old, w)
		return true
	})
	p.stats.Live -= len(old)
	return old
}

// Close waits for running documents (end their contexts first) and ends all children.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	close(p.reap)
	<-p.reapDone
	p.busy.Wait()
	for _, w := range p.takeIdle(time.Now().Add(time.Hour)) {
		w.kill()
	}
	p.warm <- struct{}{}
	defer func() { <-p.warm }()
	p.warmed = true
	p.starter.stop()
	if p.external != nil {
		p.external.Close()
	}
	if p.ownCache {
		return os.RemoveAll(p.cacheDir)
	}
	return nil
}

var (
	layerDesc = prometheus.NewDesc("ingest_extract_sandbox_layer",
		"1 while children that read documents are confined by the layer, 0 while not or before the first child.", []string{"layer"}, nil)
	childrenDesc = prometheus.NewDesc("ingest_extract_children", "Child processes alive that read documents.", nil, nil)
	startedDesc  = prometheus.NewDesc("ingest_extract_children_started_total", "Child processes started to read documents.", nil, nil)
	killedDesc   = prometheus.NewDesc("ingest_extract_children_killed_total", "Child processes killed over a limit or at a stop.", nil, nil)
	nativeDesc   = prometheus.NewDesc("ingest_extract_pdf_native", "1 while PDFs are read by the native reader, 0 while in WebAssembly.", nil, nil)
	repeatedDesc = prometheus.NewDesc("ingest_extract_pdf_repeated_total",
		"Documents that were read again in WebAssembly because the native reader ended abnormally.", nil, nil)
	peakDesc = prometheus.NewDesc("ingest_extract_child_peak_bytes", "Largest resident size that any child reached.", nil, nil)
)

// Collector shows the pool's children and what confines them; a process registers it once.
func (p *Pool) Collector() prometheus.Collector {
	return prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		s := p.Stats()
		for name, active := range map[sandbox.Layer]bool{sandbox.Landlock: s.Landlock, sandbox.Seccomp: s.Seccomp, sandbox.Namespaces: s.Namespaces} {
			out <- prometheus.MustNewConstMetric(layerDesc, prometheus.GaugeValue, flag(active), string(name))
		}
		out <- prometheus.MustNewConstMetric(nativeDesc, prometheus.GaugeValue, flag(s.Native))
		out <- prometheus.MustNewConstMetric(repeatedDesc, prometheus.CounterValue, float64(s.Repeated))
		out <- prometheus.MustNewConstMetric(childrenDesc, prometheus.GaugeValue, float64(s.Live))
		out <- prometheus.MustNewConstMetric(startedDesc, prometheus.CounterValue, float64(s.Started))
		out <- prometheus.MustNewConstMetric(killedDesc, prometheus.CounterValue, float64(s.Killed))
		out <- prometheus.MustNewConstMetric(peakDesc, prometheus.GaugeValue, float64(s.PeakBytes))
	})
}

// flag is a truth as a figure.
func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
