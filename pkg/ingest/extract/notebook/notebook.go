// Package notebook reads Jupyter notebooks (IPYNB).
package notebook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/markdown"
)

const (
	// notebookBytes bounds a notebook, which is held whole, pictures among it.
	notebookBytes = 64 << 20
	// outputBytes bounds what is read of one output: the rest is a table or a log that no one wrote.
	outputBytes = 8 << 10
)

// lines is a text that is written as one string or as a list of its lines.
type lines string

// UnmarshalJSON implements json.Unmarshaler.
func (l *lines) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = lines(one)
		return nil
	}
	var many []string
	if json.Unmarshal(data, &many) == nil {
		*l = lines(strings.Join(many, ""))
	}
	return nil // anything else is no text
}

type cell struct {
	Kind    string `json:"cell_type"`
	Source  lines  `json:"source"`
	Input   lines  `json:"input"` // of code, up to format 3
	Level   int    `json:"level"` // of a heading, up to format 3
	Outputs []struct {
		Text lines                      `json:"text"`
		Data map[string]json.RawMessage `json:"data"`
	} `json:"outputs"`
}

// Read reads the cells in their order: Markdown as such, code as code, and the beginning of what the code printed.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if in.Size > notebookBytes {
		return ingest.Extraction{}, document.OverLimit("the notebook has %d bytes, more than %d", in.Size, notebookBytes)
	}
	var book struct {
		Cells      []cell `json:"cells"`
		Worksheets []struct {
			Cells []cell `json:"cells"`
		} `json:"worksheets"`
	}
	data, err := io.ReadAll(in.Stream())
	if err != nil {
		return ingest.Extraction{}, err
	}
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")), &book); err != nil {
		return ingest.Extraction{}, document.Corrupt("read the notebook: %w", err)
	}
	for _, sheet := range book.Worksheets {
		book.Cells = append(book.Cells, sheet.Cells...)
	}
	for i, c := range book.Cells {
		if err := errors.Join(ctx.Err(), c.read(ctx, in, out)); err != nil {
			return ingest.Extraction{}, err
		}
		in.Progress(i+1, len(book.Cells))
	}
	return ingest.Extraction{}, nil
}

// read sends one cell.
func (c *cell) read(ctx context.Context, in *document.Input, out *document.Sink) error {
	switch c.Kind {
	case "markdown":
		if strings.TrimSpace(string(c.Source)) == "" {
			return nil
		}
		_, err := markdown.Read(ctx, in.Part(document.TypeMarkdown, []byte(c.Source)), out)
		return err
	case "heading":
		return out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: min(max(c.Level, 1), 6), Text: document.Squeeze(string(c.Source))})
	case "code":
		return c.code(out)
	}
	return out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: string(c.Source)})
}

// code sends a cell of code and what it printed.
func (c *cell) code(out *document.Sink) error {
	if err := out.Block(ingest.Block{Kind: ingest.BlockCode, Text: string(c.Source + c.Input)}); err != nil {
		return err
	}
	for _, o := range c.Outputs {
		text := o.Text
		if plain := o.Data["text/plain"]; plain != nil {
			_ = text.UnmarshalJSON(plain)
		}
		said := string(text)
		if len(said) > outputBytes {
			said = strings.ToValidUTF8(said[:outputBytes], "") + " …"
		}
		if err := out.Block(ingest.Block{Kind: ingest.BlockCode, Text: said}); err != nil {
			return err
		}
	}
	return nil
}
