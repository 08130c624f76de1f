// Package html reads web pages.
package html

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// htmlTokenBytes bounds one token: pictures inside attributes are large, but not larger.
	htmlTokenBytes = 16 << 20
	// layoutCellBytes is the size of a cell above which a table only arranges the page.
	layoutCellBytes = 2 << 10
)

// Read reads a page token by token, so that neither depth nor size of the page costs memory.
// Scripts, styles and what stands around the content (nav, footer, aside) are dropped;
// a page that is nothing else is read again with them.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	cs, err := charset.Find(in, namedInPage)
	if err != nil {
		return ingest.Extraction{}, err
	}
	var page *htmlPage
	for _, all := range []bool{false, true} {
		src, err := cs.Reader(in.Stream())
		if err != nil {
			return ingest.Extraction{}, err
		}
		page = &htmlPage{out: out, keepAll: all}
		if err := page.read(ctx, in, src); err != nil {
			return ingest.Extraction{}, err
		}
		if out.Chars > 0 {
			break
		}
	}
	return ingest.Extraction{Title: document.Squeeze(page.title.String()), Charset: cs.Name}, nil
}

// ReadPart reads a piece of a page that stands in a document of another kind.
func ReadPart(ctx context.Context, raw string, out *document.Sink) error {
	page := &htmlPage{out: out}
	in := &document.Input{Size: int64(len(raw)), Progress: func(int, int) {}}
	return page.read(ctx, in, strings.NewReader(raw))
}

var metaCharset = regexp.MustCompile(`(?i)(?:<meta[^>]{0,200}charset\s*=\s*|<\?xml[^>]{0,100}encoding\s*=\s*)["']?([a-z0-9_:-]{2,40})`)

// namedInPage finds the charset that the page itself names.
func namedInPage(head []byte) string {
	if m := metaCharset.FindSubmatch(head[:min(len(head), 4096)]); m != nil {
		return string(m[1])
	}
	return ""
}

// htmlPage is one pass over a page.
type htmlPage struct {
	out     *document.Sink
	keepAll bool

	text    strings.Builder // of the block being read
	title   strings.Builder
	inTitle bool
	heading int // 1–6 inside a heading
	pre     int // depth of <pre>
	item    bool
	lists   []int // open lists: -1 unordered, else the number of the last item

	skipName  string // of the element whose content is dropped
	skipDepth int

	table  *document.TableWriter
	depth  int // of tables; only the outermost makes rows
	grid   grid
	inCell bool
	inRow  bool
	span   span // of the cell being read
	layout bool // the outermost table only arranges the page
}

func (p *htmlPage) read(ctx context.Context, in *document.Input, src io.Reader) error {
	z := html.NewTokenizer(src)
	z.SetMaxBuf(htmlTokenBytes)
	done := 0
	for {
		kind := z.Next()
		before := done
		done += len(z.Raw())
		if done/document.ProgressBytes != before/document.ProgressBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			in.Progress(min(done, int(in.Size))>>10, int(in.Size)>>10)
		}
		if kind == html.ErrorToken {
			return p.end(z.Err())
		}
		if err := p.token(z, kind); err != nil {
			return err
		}
	}
}

// end closes what is open at the end of the page.
func (p *htmlPage) end(err error) error {
	switch {
	case errors.Is(err, html.ErrBufferExceeded):
		return document.OverLimit("read html: a single element of more than %d bytes", htmlTokenBytes)
	case !errors.Is(err, io.EOF):
		return err
	}
	if p.table != nil {
		p.depth = 1
		return p.closeTable()
	}
	return p.flush()
}

func (p *htmlPage) token(z *html.Tokenizer, kind html.TokenType) error {
	switch kind {
	case html.TextToken:
		return p.addText(z)
	case html.StartTagToken, html.SelfClosingTagToken:
		raw, hasAttr := z.TagName()
		tag := atom.Lookup(raw)
		if p.skipStart(tag, string(raw), kind == html.SelfClosingTagToken) {
			return nil
		}
		name, hidden, spans := string(raw), false, span{}
		if hasAttr {
			hidden, spans = attributes(z)
		}
		if hidden && !slices.Contains(unclosed, tag) && kind == html.StartTagToken && !p.keepAll {
			p.skipName, p.skipDepth = name, 1
			return nil
		}
		return p.open(tag, spans)
	case html.EndTagToken:
		raw, _ := z.TagName()
		tag := atom.Lookup(raw)
		if p.skipEnd(tag, string(raw)) {
			return nil
		}
		return p.close(tag)
	}
	return nil
}

// skipStart handles a start tag inside dropped content, and the start of such content.
// An element that its author never closed ends where the main content begins.
func (p *htmlPage) skipStart(tag atom.Atom, name string, selfClosing bool) bool {
	if p.skipDepth > 0 {
		if tag == atom.Main || tag == atom.Article || tag == atom.Body {
			p.skipDepth = 0
			return false
		}
		if name == p.skipName && !selfClosing {
			p.skipDepth++
		}
		return true
	}
	if slices.Contains(rawText, tag) || (!selfClosing && !p.keepAll && slices.Contains(boilerplate, tag)) {
		p.skipName, p.skipDepth = name, 1
		return true
	}
	return false
}

func (p *htmlPage) skipEnd(tag atom.Atom, name string) bool {
	if p.skipDepth == 0 {
		return false
	}
	if name == p.skipName {
		p.skipDepth--
	} else if tag == atom.Body || tag == atom.Html {
		p.skipDepth = 0
	}
	return true
}

var (
	// rawText are the elements whose content is never text for a reader.
	rawText = []atom.Atom{atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Iframe, atom.Object, atom.Select}
	// boilerplate are the elements that stand around the content.
	boilerplate = []atom.Atom{atom.Nav, atom.Footer, atom.Aside, atom.Dialog}
	// unclosed are the elements that have no end tag, or whose end tag authors leave out: dropping one could drop all that follows.
	unclosed = []atom.Atom{
		atom.Br, atom.Hr, atom.Img, atom.Input, atom.Meta, atom.Link, atom.Wbr, atom.Area, atom.Base, atom.Col, atom.Embed, atom.Source, atom.Track,
		atom.P, atom.Li, atom.Dt, atom.Dd, atom.Td, atom.Th, atom.Tr, atom.Option, atom.Body, atom.Html, atom.Tbody, atom.Thead, atom.Tfoot,
	}
)

// attributes tells whether the tag carries the attribute hidden, or the role of a navigation, and how much of a table it takes.
func attributes(z *html.Tokenizer) (hidden bool, spans span) {
	for range 64 {
		key, value, more := z.TagAttr()
		switch string(key) {
		case "hidden":
			hidden = hidden || !strings.EqualFold(string(value), "until-found")
		case "role":
			hidden = hidden || strings.EqualFold(string(value), "navigation")
		case "colspan", "rowspan":
			spans.set(string(key), strings.TrimSpace(string(value)))
		}
		if !more {
			break
		}
	}
	return hidden, spans
}
