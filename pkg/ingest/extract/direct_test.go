package extract

import (
	"context"
	"errors"
	"io"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

// direct reads documents in the test's own process, with no protection but the readers' own limits.
type direct struct{}

// Extract implements ingest.Extractor.
func (direct) Extract(ctx context.Context, src ingest.Source, _ func(done, total int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	info, err := src.File.Stat()
	if err != nil {
		return ingest.Extraction{}, err
	}
	mediaType, err := detect.File(src.File, info.Size(), src.Name)
	if err != nil {
		return ingest.Extraction{}, err
	}
	return formats.ReadGuarded(ctx, &document.Input{
		File: src.File, Size: info.Size(), MediaType: mediaType, Limits: NewDefaultConfig().limits(), Progress: func(int, int) {},
	}, emit)
}

// Attachments implements ingest.Extractor.
func (direct) Attachments(context.Context, ingest.Source, func(done, total int), func(string, io.Reader) error) error {
	return errors.ErrUnsupported
}

// Fingerprint implements ingest.Extractor.
func (direct) Fingerprint() string { return formats.Fingerprint() }
