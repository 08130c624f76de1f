package office

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/ole"
)

// Bounds of what is read of one chart; what is beyond them is left out.
const (
	maxSeries = 64
	maxPoints = 1000
)

// Graphics are the charts, diagrams (SmartArt) and embedded files that a part shows; what they say stands in parts of their own. Nil: they
// are not read.
type Graphics struct {
	archive *Archive
	rels    *Relations
	pending []string // charts and diagrams
	objects []string // embedded files
	seen    map[string]bool
}

// GraphicsOf are those of the part with the relationships.
func (a *Archive) GraphicsOf(rels *Relations) *Graphics {
	return &Graphics{archive: a, rels: rels, seen: map[string]bool{}}
}

// Start is told each element of the part.
func (g *Graphics) Start(name string, attrs []xml.Attr) {
	if g == nil {
		return
	}
	switch name {
	case "chart":
		g.note(&g.pending, g.rels.ByID[Attr(attrs, "id")])
	case "relIds":
		g.note(&g.pending, g.rels.ByID[Attr(attrs, "dm")])
	case "OLEObject", "oleObj", "oleObject":
		g.note(&g.objects, g.rels.Objects[Attr(attrs, "id")])
	}
}

// note remembers a part that was not met before.
func (g *Graphics) note(in *[]string, part string) {
	if part != "" && !g.seen[part] {
		g.seen[part] = true
		*in = append(*in, part)
	}
}

// Send writes those that were met since the last Send: of a chart its titles and a table of its values, of a diagram its texts as a list,
// of an embedded file what its reader finds. An embedded file that cannot be read is a warning.
func (g *Graphics) Send(ctx context.Context, in *document.Input, out *document.Sink, page int) error {
	if g == nil {
		return nil
	}
	pending, objects := g.pending, g.objects
	g.pending, g.objects = nil, nil
	for _, part := range pending {
		v := &graphic{out: out, page: page}
		if err := g.archive.Visit(part, v); err != nil {
			return err
		}
		if err := v.chart(); err != nil {
			return err
		}
	}
	for _, part := range objects {
		if err := g.object(ctx, in, out, part, page); err != nil {
			return err
		}
	}
	return nil
}

// object reads an embedded file.
func (g *Graphics) object(ctx context.Context, in *document.Input, out *document.Sink, part string, page int) error {
	data, err := g.archive.Bytes(part, ole.MaxBytes)
	if f, ok := errors.AsType[*ingest.Failure](err); ok {
		out.Warn("the embedded file %q was not read: %v", part, f)
		return nil
	}
	if f, ok := ole.Unpack(part, data); ok && err == nil {
		return f.Read(ctx, in, out, page)
	}
	return err
}

// HasObjects reports whether a document embeds files that may be of any format; those of Office's own formats are not among them.
func HasObjects(file io.ReaderAt, size int64) (has bool) {
	dir, err := archive.ReadDirectory(file, size)
	if err != nil || dir.CheckLimits() != nil {
		return false // its reader says what is wrong
	}
	_ = dir.Each(file, func(m archive.Member) bool { // and so here
		has = strings.Contains(m.Name, "/embeddings/") && (path.Ext(m.Name) == ".bin" || path.Ext(m.Name) == ".pdf")
		return !has
	})
	return has
}

// series is one row of values of a chart.
type series struct {
	name     string
	category map[int]string
	value    map[int]string
}

// graphic reads the part of a chart or of a diagram.
type graphic struct {
	out  *document.Sink
	page int

	text   strings.Builder
	inText bool
	titles []string
	all    []series
	open   *series // being read
	of     string  // what of the series its points are: tx, cat, val, xVal or yVal
	point  int
}

// Start implements Visitor.
func (g *graphic) Start(name string, attrs []xml.Attr) error {
	switch name {
	case "ser":
		g.open = &series{category: map[int]string{}, value: map[int]string{}}
	case "tx", "cat", "val", "xVal", "yVal":
		g.of = name
	case "pt": // of a series, or of a diagram
		g.point, _ = strconv.Atoi(Attr(attrs, "idx")) // 0 where it is none
		g.text.Reset()
	case "v", "t":
		g.inText = g.open == nil || name == "v" && g.of != "" // a label of a point repeats its value
	case "title":
		g.text.Reset()
	}
	return nil
}

// Text implements Visitor.
func (g *graphic) Text(data []byte) error {
	if g.inText && g.text.Len() < document.MaxBlockBytes {
		g.text.Write(data)
	}
	return nil
}

// End implements Visitor.
func (g *graphic) End(name string) error {
	switch name {
	case "t":
		g.inText = false
	case "p":
		g.text.WriteByte(' ')
	case "v":
		g.inText = false
		g.value()
	case "tx", "cat", "val", "xVal", "yVal":
		g.of = ""
	case "ser":
		if g.open != nil && len(g.all) < maxSeries {
			g.all = append(g.all, *g.open)
		}
		g.open = nil
	case "title":
		g.titles = append(g.titles, document.Squeeze(g.text.String()))
		g.text.Reset()
	case "pt":
		if g.open == nil && g.of == "" {
			text := document.Squeeze(g.text.String())
			g.text.Reset()
			return g.out.Block(ingest.Block{Kind: ingest.BlockList, Page: g.page, Text: text})
		}
	}
	return nil
}

// value puts a point's text where it belongs. What is beyond a block's size at one place is left out: each text more would copy all
// before it.
func (g *graphic) value() {
	if g.open == nil {
		return // it is a title's
	}
	text := document.Squeeze(g.text.String())
	g.text.Reset()
	if g.point < 0 || g.point >= maxPoints {
		return
	}
	switch g.of {
	case "tx":
		if len(g.open.name) < document.MaxBlockBytes {
			g.open.name = strings.TrimSpace(g.open.name + " " + text)
		}
	case "cat", "xVal":
		outer := g.open.category[g.point]
		if len(outer) >= document.MaxBlockBytes {
			return
		}
		g.open.category[g.point] = strings.TrimSpace(text + " " + outer) // of several levels the inner one comes first
	case "val", "yVal":
		g.open.value[g.point] = text
	}
}

// chart writes what was read of a chart; a diagram has none.
func (g *graphic) chart() error {
	for _, title := range g.titles {
		if err := g.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Page: g.page, Text: title}); err != nil {
			return err
		}
	}
	if len(g.all) == 0 {
		return nil
	}
	rows := 0
	header := []string{""}
	for _, s := range g.all {
		header = append(header, s.name)
		for _, points := range []map[int]string{s.category, s.value} {
			for i := range points {
				rows = max(rows, i+1)
			}
		}
	}
	table := &document.TableWriter{Out: g.out, Page: g.page}
	if err := table.Row(header); err != nil {
		return err
	}
	for i := range rows {
		cells := []string{""}
		for _, s := range g.all {
			if cells[0] == "" {
				cells[0] = s.category[i]
			}
			cells = append(cells, s.value[i])
		}
		if strings.Join(cells, "") == "" {
			continue
		}
		if err := table.Row(cells); err != nil {
			return err
		}
	}
	return table.Flush()
}
