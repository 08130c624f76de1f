package pipeline

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
)

// Sample is a document that is to be cut for a look, without being taken in.
type Sample struct {
	File            *os.File
	Name, MediaType string
	Document        string // whose visible version may have texts already; empty: none
	Chunking        ingest.Chunking
	Limit           int // of segments that are shown
}

// Preview is what would become of a document.
type Preview struct {
	Found    ingest.Extraction
	Chunker  string // name, version and settings
	Segments int
	Tokens   int64
	Shown    []ingest.Segment // the first ones
	// New are the segments with texts that have to be paid for: neither the document's visible version nor the embedding cache has
	// them. NewTokens are theirs.
	New       int
	NewTokens int64
	Cost      *float64 // of these; nil: no price is known
	Model     string
}

// maxShown bounds the text of the segments that a preview shows, in bytes.
const maxShown = 160 << 10

// Preview reads and cuts a document as Handle does, and counts what it would cost. Nothing is written but that cached
// embeddings were used.
// Errors: those of the Extractor; permanent when there is no text.
func (w *Worker) Preview(ctx context.Context, s Sample, progress func(done, total int)) (Preview, error) {
	p := Preview{Chunker: w.d.Splitter.Fingerprint(s.Chunking), Model: w.d.Embedder.Model().Key}
	texts := map[embedcache.TextHash]int{} // tokens of each text
	bytes := 0
	split := w.d.Splitter.NewRun(s.Chunking)
	take := func(all []ingest.Segment) error {
		for _, seg := range all {
			if p.Segments++; p.Segments > maxSegments {
				return ingest.Permanent(ingest.CodeLimitExceeded, "Split the document into smaller ones.", "split: more than %d segments", maxSegments)
			}
			p.Tokens += int64(seg.Tokens)
			texts[sha256.Sum256([]byte(seg.Text))] = seg.Tokens
			if bytes += len(seg.Text); len(p.Shown) < s.Limit && bytes <= maxShown {
				p.Shown = append(p.Shown, seg)
			}
		}
		return ctx.Err()
	}
	found, err := w.d.Extractor.Extract(ctx, ingest.Source{File: s.File, Name: s.Name, MediaType: s.MediaType}, progress, func(b ingest.Block) error {
		return take(split.Add(b))
	})
	if err == nil {
		err = take(split.Close())
	}
	if err != nil {
		return p, fmt.Errorf("extract: %w", err)
	}
	p.Found = found
	if p.Segments == 0 {
		return p, reading{&run{found: found}}.noText()
	}
	return p, w.price(ctx, s.Document, texts, &p)
}

// Attachments gives away the attachments of a stored message, as an Extractor does.
func (w *Worker) Attachments(ctx context.Context, src ingest.Source, progress func(done, total int), visit func(name string, r io.Reader) error) error {
	return w.d.Extractor.Attachments(ctx, src, progress, visit)
}

// Cost is what tokens cost; nil: no price is known.
func (w *Worker) Cost(tokens int64) *float64 {
	if w.d.TokenPrice <= 0 {
		return nil
	}
	return new(float64(tokens) * w.d.TokenPrice / 1e6)
}

// Current reports whether this process would make a version with the same readers and the same splitter.
func (w *Worker) Current(extractor, splitter string, c ingest.Chunking) bool {
	readers, settings := made(w.d.Extractor.Fingerprint())
	was, with := made(extractor)
	for _, r := range was {
		if !slices.Contains(readers, r) {
			return false
		}
	}
	return len(was) > 0 && slices.Equal(settings, with) && splitter == short(w.d.Splitter.Fingerprint(c))
}

// made takes the readers and the settings that an extractor names apart. A reader behind a converter has that one's name before it:
// tika+html/1.
func made(extractor string) (readers, settings []string) {
	for _, name := range strings.Fields(extractor) {
		if !strings.Contains(name, "/") || strings.Contains(name, "=") {
			settings = append(settings, name)
			continue
		}
		if _, own, foreign := strings.Cut(name, "+"); foreign {
			name = own
		}
		readers = append(readers, name)
	}
	return readers, settings
}

// price counts the texts that have to be paid for.
func (w *Worker) price(ctx context.Context, document string, texts map[embedcache.TextHash]int, p *Preview) error {
	if document != "" {
		plan := planning{&run{w: w, work: work{document: document, no: 2}}}
		visible, err := plan.visibleVersion(ctx)
		if err != nil {
			return err
		}
		free, err := plan.visibleVectors(ctx, visible)
		if err != nil {
			return err
		}
		for hash := range free {
			delete(texts, hash)
		}
	}
	hashes := make([]embedcache.TextHash, 0, len(texts))
	for hash := range texts {
		hashes = append(hashes, hash)
	}
	for some := range slices.Chunk(hashes, planPage) {
		known, err := w.cache.Known(ctx, w.d.Embedder.Model().Key, some)
		if err != nil {
			return fmt.Errorf("look for embeddings that were paid for: %w", err)
		}
		for hash := range known {
			delete(texts, hash)
		}
	}
	for _, tokens := range texts {
		p.New++
		p.NewTokens += int64(tokens)
	}
	p.Cost = w.Cost(p.NewTokens)
	return nil
}
