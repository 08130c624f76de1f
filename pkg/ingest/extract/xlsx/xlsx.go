// Package xlsx reads Excel workbooks (OOXML).
package xlsx

import (
	"archive/zip"
	"context"
	"errors"
	"strings"

	"github.com/xuri/excelize/v2"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

const (
	// unpackedBytes bounds all parts of a workbook together; they are held in memory.
	unpackedBytes = 128 << 20
	// maxColumns is up to where a row keeps its empty cells: beyond, it is a cell somewhere far out.
	maxColumns = 1024
)

// Read reads the sheets in their order, row by row: each begins with its name as a heading, cells as Excel shows them, and its first row
// stands above every piece. Hidden sheets are read with in.Limits.HiddenSheets only.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	a, err := office.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	title, err := a.Title("docProps/core.xml")
	if err != nil {
		return ingest.Extraction{}, err
	}
	if !a.Has("xl/workbook.xml") {
		return ingest.Extraction{}, document.Corrupt("the archive has no xl/workbook.xml")
	}
	book, err := excelize.OpenReader(in.Stream(), excelize.Options{UnzipSizeLimit: unpackedBytes, UnzipXMLSizeLimit: unpackedBytes})
	if err != nil {
		return ingest.Extraction{}, failure(err)
	}
	defer func() { _ = book.Close() }()
	sheets := book.GetSheetList()
	for i, name := range sheets {
		if visible, err := book.GetSheetVisible(name); err == nil && !visible && !in.Limits.HiddenSheets {
			in.Warn("the hidden sheet %q was not read", name)
			continue
		}
		if err := readSheet(ctx, book, name, out); err != nil {
			return ingest.Extraction{}, err
		}
		in.Progress(i+1, len(sheets))
	}
	return ingest.Extraction{Title: title}, nil
}

// failure says what an error of the library means to the user.
func failure(err error) error {
	if errors.Is(err, zip.ErrFormat) || errors.Is(err, excelize.ErrWorkbookFileFormat) {
		return document.Corrupt("open the workbook: %w", err)
	}
	if strings.Contains(err.Error(), "unzip size exceeds") {
		return document.OverLimit("the workbook unpacks to more than %d bytes", unpackedBytes)
	}
	return document.Corrupt("read the workbook: %w", err)
}

// readSheet streams the rows of a sheet. A chart sheet has none.
func readSheet(ctx context.Context, book *excelize.File, name string, out *document.Sink) error {
	rows, err := book.Rows(name)
	if err != nil {
		if _, none := errors.AsType[excelize.ErrSheetNotExist](err); none {
			return nil
		}
		return failure(err)
	}
	defer func() { _ = rows.Close() }()
	table := &document.TableWriter{Out: out}
	for first := true; rows.Next(); {
		cells, err := rows.Columns()
		if err != nil {
			return failure(err)
		}
		if cells = compact(cells); len(cells) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if first {
			first = false
			if err := out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: 2, Text: document.Squeeze(name)}); err != nil {
				return err
			}
		}
		if err := table.Row(cells); err != nil {
			return err
		}
	}
	if err := rows.Error(); err != nil {
		return failure(err)
	}
	return table.Flush()
}

// compact drops the empty cells at a row's end, and all of them when it is wider than a table.
func compact(cells []string) []string {
	for len(cells) > 0 && strings.TrimSpace(cells[len(cells)-1]) == "" {
		cells = cells[:len(cells)-1]
	}
	if len(cells) <= maxColumns {
		return cells
	}
	kept := cells[:0]
	for _, c := range cells {
		if strings.TrimSpace(c) != "" {
			kept = append(kept, c)
		}
	}
	return kept
}
