// Package markdown reads Markdown.
package markdown

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/html"
	"github.com/millweir/millweir/pkg/ingest/extract/plaintext"
)

// markdownBytes is the most that is parsed as Markdown: the tree takes many times the text's size.
// A larger file is read as plain text.
const markdownBytes = 8 << 20

// Read reads CommonMark with tables: headings of both styles, lists, code, quotes.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if in.Size > markdownBytes {
		return plaintext.Read(ctx, in, out)
	}
	r, name, err := charset.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	source, err := io.ReadAll(io.LimitReader(r, 4*markdownBytes))
	if err != nil {
		return ingest.Extraction{}, err
	}
	source = bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n"))
	title, source := frontMatter(source)
	tree := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough)).Parser().Parse(text.NewReader(source))
	m := &markdown{ctx: ctx, source: source, out: out}
	if err := m.blocks(tree, ""); err != nil {
		return ingest.Extraction{}, err
	}
	return ingest.Extraction{Title: title, Charset: name}, nil
}

// frontMatter cuts a YAML header off and takes its title.
func frontMatter(source []byte) (title string, rest []byte) {
	if !bytes.HasPrefix(source, []byte("---\n")) {
		return "", source
	}
	end := bytes.Index(source[4:], []byte("\n---\n"))
	if end < 0 || end > 64<<10 {
		return "", source
	}
	for line := range strings.Lines(string(source[4 : 4+end])) {
		if value, ok := strings.CutPrefix(line, "title:"); ok {
			title = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return title, source[4+end+5:]
}

// markdown walks the tree of one document.
type markdown struct {
	ctx    context.Context //nolint:containedctx // lives for one walk
	source []byte
	out    *document.Sink
}

// blocks sends the block-level children of a node; kind, when set, is what paragraphs are sent as.
func (m *markdown) blocks(parent ast.Node, kind ingest.BlockKind) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	number := 0
	if list, ok := parent.(*ast.List); ok && list.IsOrdered() {
		number = list.Start
	}
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		if err := m.block(n, kind, number); err != nil {
			return err
		}
		if number > 0 {
			number++
		}
	}
	return nil
}

func (m *markdown) block(n ast.Node, kind ingest.BlockKind, number int) error {
	switch n := n.(type) {
	case *ast.Heading:
		return m.out.Block(ingest.Block{Kind: ingest.BlockHeading, Text: m.inline(n), Level: n.Level})
	case *ast.Paragraph, *ast.TextBlock:
		if kind == "" {
			kind = ingest.BlockParagraph
		}
		return m.out.Block(ingest.Block{Kind: kind, Text: m.inline(n)})
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		return m.out.Block(ingest.Block{Kind: ingest.BlockCode, Text: m.lines(n)})
	case *ast.HTMLBlock:
		return html.ReadPart(m.ctx, m.lines(n), m.out)
	case *ast.ListItem:
		return m.item(n, number)
	case *east.Table:
		return m.table(n)
	default:
		return m.blocks(n, kind)
	}
}

// item sends an item's first paragraph with its number, then what else it holds.
func (m *markdown) item(n *ast.ListItem, number int) error {
	first := n.FirstChild()
	for c := first; c != nil; c = c.NextSibling() {
		_, para := c.(*ast.Paragraph)
		_, tight := c.(*ast.TextBlock)
		if c != first || !(para || tight) || number == 0 {
			if err := m.block(c, ingest.BlockList, 0); err != nil {
				return err
			}
			continue
		}
		text := strconv.Itoa(number) + ". " + m.inline(c)
		if err := m.out.Block(ingest.Block{Kind: ingest.BlockList, Text: text}); err != nil {
			return err
		}
	}
	return nil
}

func (m *markdown) table(n *east.Table) error {
	t := &document.TableWriter{Out: m.out}
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, m.inline(cell))
		}
		if err := t.Row(cells); err != nil {
			return err
		}
	}
	return t.Flush()
}

// lines is the literal text of a block.
func (m *markdown) lines(n ast.Node) string {
	var b strings.Builder
	segments := n.Lines()
	for i := range segments.Len() {
		s := segments.At(i)
		b.Write(s.Value(m.source))
	}
	return b.String()
}

// inline is the text of a node's inline content: marks dropped, soft line ends joined.
func (m *markdown) inline(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(c ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch c := c.(type) {
		case *ast.CodeSpan:
			for t := c.FirstChild(); t != nil; t = t.NextSibling() {
				if t, ok := t.(*ast.Text); ok {
					b.Write(t.Segment.Value(m.source))
				}
			}
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			b.Write(unescapeInline(c.Segment.Value(m.source)))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte('\n')
			}
		case *ast.String:
			b.Write(c.Value)
		case *ast.AutoLink:
			b.Write(c.URL(m.source))
		case *ast.RawHTML:
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return document.Squeeze(b.String())
}

// unescapeInline resolves backslash escapes and entities, which the tree keeps as they were written.
func unescapeInline(s []byte) []byte {
	if !bytes.ContainsAny(s, `\&`) {
		return s
	}
	return util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(s)))
}
