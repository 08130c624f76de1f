package extract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
)

// External is where the service stands that converts the types of EXTRACT_TYPES.
type External struct {
	URL string // EXTRACT_URL
	Key string // EXTRACT_API_KEY
}

// validate names what the service lacks.
func (e External) validate(accept detect.Config) error {
	switch {
	case accept.On() && e.URL == "":
		return fmt.Errorf("EXTRACT_URL: must be set, EXTRACT_KIND is %s", accept.Kind)
	case !accept.On() && e.URL != "":
		return errors.New("EXTRACT_KIND: must be tika or docling, EXTRACT_URL is set")
	}
	return nil
}

// extractForeign has a document converted and reads the page that comes back in a child, as it would one that was uploaded.
func (p *Pool) extractForeign(ctx context.Context, file *os.File, mediaType string, size int64, progress func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	if err := p.enter(ctx, progress); err != nil {
		return ingest.Extraction{}, err
	}
	defer func() { <-p.slots }()
	stop := reportWaiting(progress)
	page, warning, err := p.external.Convert(ctx, file, size, mediaType, p.cfg.timeout(size))
	stop()
	if err != nil {
		return ingest.Extraction{}, err
	}
	if len(page) == 0 {
		return ingest.Extraction{}, ingest.Permanent(ingest.CodeEmpty, document.RemedyEmpty, "the document holds no text")
	}
	converted, err := hold(page)
	if err != nil {
		return ingest.Extraction{}, err
	}
	defer func() { _ = converted.Close() }()
	reader, _ := formats.For(document.TypeHTML)
	heading := ""
	noting := func(b ingest.Block) error {
		if heading == "" && b.Kind == ingest.BlockHeading {
			heading = document.CleanTitle(b.Text)
		}
		return emit(b)
	}
	ex, err := p.read(ctx, converted, frame.Job{MediaType: document.TypeHTML, Size: int64(len(page)), Limits: p.cfg.limits()}, reader, progress, noting)
	if err != nil {
		return ingest.Extraction{}, err
	}
	ex.MediaType, ex.Reader = mediaType, string(p.cfg.Accept.Kind)+"+"+ex.Reader
	// Tika's page of a document without a title has a NUL. Docling's title is the name that the file was sent under, always.
	if p.cfg.Accept.Kind == detect.Docling || strings.Trim(ex.Title, "\uFFFD ") == "" {
		ex.Title = heading
	}
	if warning != "" {
		said := document.Sink{Warnings: ex.Warnings}
		said.Warn("%s", warning)
		ex.Warnings = said.Warnings
	}
	return ex, nil
}

// hold keeps a page in a file without a name, as children read descriptors only.
func hold(page []byte) (*os.File, error) {
	file, err := os.CreateTemp("", "millweir-page-")
	if err != nil {
		return nil, fmt.Errorf("%w: hold a converted document: %w", ingest.ErrProcess, err)
	}
	if err = os.Remove(file.Name()); err == nil {
		_, err = file.Write(page)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%w: hold a converted document: %w", ingest.ErrProcess, err)
	}
	return file, nil
}

// reportWaiting reports that nothing is done yet until stop is called: who waits for a service must not fail as stalled.
func reportWaiting(progress func(done, total int)) (stop func()) {
	if progress == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(waitReport)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				progress(0, 0)
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
