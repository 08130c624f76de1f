package split

import (
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	// blockJoin stands between the blocks of the extracted text.
	blockJoin = "\n\n"
	// joinCost is what a join takes, in either unit.
	joinCost = 2
	// maxPathRunes bounds one heading of a path.
	maxPathRunes = 200
	// maxHeadingLevel is the deepest heading.
	maxHeadingLevel = 6
	// leastShare is the part of a segment's size below which a section is small: 102 of 512 tokens.
	leastShare = 5
	// anchored is the part of a size above which a text may end at an anchor: in the last two thirds. So of two large units each may end it.
	anchored = 3
	// mostAnchors is the part of large units that are anchors: if all were, none would be told from the others.
	mostAnchors = 0.5
)

// unit is the smallest piece that is not cut: a sentence, a line of code, a row, or a part of one that was too long.
type unit struct {
	text  string // with the white space that follows it in its block
	start int64  // of text in the document's extracted text
	cost  int
	page  int
	kind  ingest.BlockKind
	block int // number of its block
	// parted: white space too large for any segment stands before it, so it begins one.
	parted bool
	head   string // table rows: the header row; empty for that row itself
	heads  bool   // it is that row
}

func (u unit) end() int64 { return u.start + int64(len(u.text)) }

// run is one document's pass.
type run struct {
	cfg    ingest.Chunking
	count  func(string) int // size of a text in the unit of cfg
	offset int64            // of the next block in the extracted text
	blocks int
	index  int
	path   [maxHeadingLevel]string

	held    []unit
	cost    int
	fresh   int // units of held that no earlier segment had
	body    bool
	curPath []string

	// The segments of a parent that has not ended.
	open      []ingest.Segment
	openCosts []int // of each
	openCost  int   // of all
	openPath  []string
}

// Add implements ingest.SplitRun.
func (r *run) Add(b ingest.Block) []ingest.Segment {
	if strings.TrimSpace(b.Text) == "" {
		return nil
	}
	if r.blocks > 0 {
		r.offset += int64(len(blockJoin))
	}
	var out []ingest.Segment
	switch {
	case b.Kind == ingest.BlockHeading:
		out = r.section(out, b)
	case r.cfg.Strategy == ingest.ChunkRows && b.Kind == ingest.BlockTable && r.body:
		out = r.end(out)
	}
	units := r.units(b)
	if b.Kind == ingest.BlockCode && r.endsInCode() && r.cost >= r.cfg.Size/leastShare && r.cost+joinCost+costs(units) > r.cfg.Size {
		out = r.end(out) // a declaration begins a segment unless the one before would be small
	}
	for _, u := range units {
		if out = r.take(out, u); r.alone(u) {
			out = r.end(out)
		}
	}
	if r.cfg.Strategy == ingest.ChunkSentences && b.Kind != ingest.BlockHeading {
		out = r.end(out) // a table or code: sentences have ended
	}
	r.offset += int64(len(b.Text))
	r.blocks++
	return out
}

// endsInCode reports whether the segment being filled ends in a block of code.
func (r *run) endsInCode() bool {
	return r.fresh > 0 && r.held[len(r.held)-1].kind == ingest.BlockCode
}

func costs(units []unit) int {
	sum := 0
	for _, u := range units {
		sum += u.cost
	}
	return sum
}

// Close implements ingest.SplitRun.
func (r *run) Close() []ingest.Segment {
	return r.endParent(r.end(nil))
}

// section enters a heading. A new section begins a segment; headings that follow each other stay together, and so do small sections
// of one larger section. The same goes for parents.
func (r *run) section(out []ingest.Segment, b ingest.Block) []ingest.Segment {
	r.enter(b)
	path := r.headings()
	outer := path[:len(path)-1]
	if len(r.open) > 0 {
		shared := sharedPath(r.openPath, outer)
		if r.openCost+r.cost >= r.cfg.ParentSize/leastShare || len(shared) == 0 {
			return r.endParent(r.end(out))
		}
		r.openPath = shared
	}
	shared := sharedPath(r.curPath, outer)
	switch {
	case !r.body:
	case r.cfg.Strategy == ingest.ChunkHeadings, r.cost >= r.cfg.Size/leastShare, len(shared) == 0:
		out = r.end(out)
	default:
		r.curPath = shared
	}
	return out
}

// alone reports whether a unit is the last of its segment whatever follows.
func (r *run) alone(u unit) bool {
	switch r.cfg.Strategy {
	case ingest.ChunkRows:
		return u.kind == ingest.BlockTable && !u.heads
	case ingest.ChunkSentences:
		return repeats(u)
	default:
		return false
	}
}

// enter puts a heading into the path.
func (r *run) enter(b ingest.Block) {
	level := min(max(b.Level, 1), maxHeadingLevel)
	text := strings.Join(strings.Fields(b.Text), " ")
	if utf8.RuneCountInString(text) > maxPathRunes {
		text = string([]rune(text)[:maxPathRunes])
	}
	r.path[level-1] = text
	clear(r.path[level:])
}

// headings is the path at this point, outermost first.
func (r *run) headings() []string {
	var path []string
	for _, h := range r.path {
		if h != "" {
			path = append(path, h)
		}
	}
	return path
}

// sharedPath is the beginning that two paths have in common.
func sharedPath(a, b []string) []string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n:n]
}

// take adds a unit, closing the segment before it when it would become too large.
func (r *run) take(out []ingest.Segment, u unit) []ingest.Segment {
	for len(r.open) > 0 && r.openCost+r.cost+r.costOf(u) > r.cfg.ParentSize {
		out = r.fullParent(out)
	}
	switch {
	case u.parted:
		out = r.flush(out)
		r.held, r.cost, r.fresh = nil, 0, 0
	case r.fresh > 0 && r.cost+r.costOf(u) > r.cfg.Size:
		later := append(r.behindAnchor(), u)
		out = r.flush(out)
		r.keepOverlap(later[0])
		for _, u := range later[:len(later)-1] {
			out = r.take(out, u)
		}
		return r.take(out, u)
	}
	for len(r.held) > 0 && r.fresh == 0 && r.cost+r.costOf(u) > r.cfg.Size {
		r.held = slices.Delete(r.held, 0, 1)
		r.recount()
	}
	r.cost += r.costOf(u)
	r.held = append(r.held, u)
	r.fresh++
	if !r.body {
		r.curPath = r.headings()
	}
	r.body = r.body || u.kind != ingest.BlockHeading
	return out
}

// behindAnchor takes the units behind the last anchor of a full segment away from it; none: it has no anchor.
// Anchors are chosen by the text alone, about one for half a segment, so that the same text is cut at the same places whatever stands
// before it: after an edit only the segments around it are new.
func (r *run) behindAnchor() []unit {
	cost, first := r.cost, len(r.held)-r.fresh
	for i := len(r.held) - 1; i >= first && anchored*cost >= r.cfg.Size && r.held[i].kind != ingest.BlockHeading && !r.held[i].heads; i-- {
		if anchors(r.held[i].text, r.held[i].cost, r.cfg.Size) {
			later := slices.Clone(r.held[i+1:])
			r.held, r.fresh = r.held[:i+1], r.fresh-len(later)
			r.recount()
			return later
		}
		cost -= r.held[i].cost
	}
	return nil
}

// anchors reports whether what has so large a size, a segment or a parent, likes to end with a text.
func anchors(text string, cost, size int) bool {
	h := fnv.New64a()
	_, _ = io.WriteString(h, strings.TrimSpace(text)) // a hash takes all
	const golden = 0x9E3779B97F4A7C15                 // spreads the last bytes over all bits
	return float64(h.Sum64()*golden)/(1<<64) < min(2*float64(cost)/float64(size), mostAnchors)
}

// costOf is what a unit adds to the held ones: with the join before it, or its table's header row.
func (r *run) costOf(u unit) int {
	switch {
	case len(r.held) == 0 && u.head != "":
		return u.cost + r.count(u.head) + joinCost
	case len(r.held) > 0 && r.held[len(r.held)-1].block != u.block:
		return u.cost + joinCost
	}
	return u.cost
}

func (r *run) recount() {
	held := r.held
	r.held, r.cost = r.held[:0], 0
	for _, u := range held {
		r.cost += r.costOf(u)
		r.held = append(r.held, u)
	}
}

// keepOverlap keeps the last whole sentences of the segment that was just closed.
// Headings, rows and code are not repeated: the first stand in the path, the second have their header.
func (r *run) keepOverlap(next unit) {
	keep, cost := len(r.held), 0
	for keep > 0 && repeats(r.held[keep-1]) && repeats(next) {
		c := r.held[keep-1].cost
		lastOnly := keep == len(r.held) && c <= 2*r.cfg.Overlap
		if cost+c > r.cfg.Overlap && !lastOnly {
			break
		}
		cost += c
		keep--
		if cost > r.cfg.Overlap {
			break
		}
	}
	if keep == 0 {
		// Never the whole segment once more.
		keep = len(r.held)
	}
	r.held = slices.Clone(r.held[keep:])
	r.fresh = 0
	r.body = len(r.held) > 0
	r.curPath = r.headings()
	r.recount()
}

func repeats(u unit) bool {
	return u.kind == ingest.BlockParagraph || u.kind == ingest.BlockList
}

// end makes a segment of the held units, if any of them is new, and forgets them.
func (r *run) end(out []ingest.Segment) []ingest.Segment {
	out = r.flush(out)
	r.held, r.cost, r.fresh, r.body, r.curPath = nil, 0, 0, false, nil
	return out
}

// endParent returns the segments of the open parent, each with the range of all of them.
func (r *run) endParent(out []ingest.Segment) []ingest.Segment {
	for _, seg := range r.open {
		seg.Around = [2]int{r.open[0].Index, r.open[len(r.open)-1].Index}
		if len(r.open) == 1 {
			seg.Around = [2]int{}
		}
		out = append(out, seg)
	}
	r.open, r.openCosts, r.openCost, r.openPath = nil, nil, 0, nil
	return out
}

// fullParent ends the open parent behind its last anchor, or behind its last segment.
func (r *run) fullParent(out []ingest.Segment) []ingest.Segment {
	end, cost := len(r.open), r.openCost
	for i := end - 1; i >= 0 && anchored*cost >= r.cfg.ParentSize; i-- {
		if anchors(r.open[i].Text, r.openCosts[i], r.cfg.ParentSize) {
			end = i + 1
			break
		}
		cost -= r.openCosts[i]
	}
	later, costs := r.open[end:], r.openCosts[end:] // endParent forgets both and changes neither
	r.open = r.open[:end]
	out = r.endParent(out)
	for i, seg := range later {
		r.opened(seg, costs[i])
	}
	return out
}

// opened adds a segment to the open parent.
func (r *run) opened(seg ingest.Segment, cost int) {
	if len(r.open) == 0 {
		r.openPath = seg.HeadingPath
	}
	r.open, r.openCosts, r.openCost = append(r.open, seg), append(r.openCosts, cost), r.openCost+cost
}

// flush makes a segment of the held units if any of them is new.
func (r *run) flush(out []ingest.Segment) []ingest.Segment {
	if r.fresh == 0 {
		return out
	}
	var text strings.Builder
	first := r.held[0]
	if first.head != "" {
		text.WriteString(first.head + "\n")
	}
	page, breaks := first.page, [][2]int{}
	for i, u := range r.held {
		if i > 0 && r.held[i-1].block != u.block {
			text.WriteString(blockJoin)
		}
		if u.page != page {
			page = u.page
			breaks = append(breaks, [2]int{text.Len(), page})
		}
		text.WriteString(u.text)
	}
	last := r.held[len(r.held)-1]
	trailing := len(last.text) - len(strings.TrimRight(last.text, " \t\n"))
	body := strings.TrimRight(text.String(), " \t\n")
	seg := ingest.Segment{
		Index: r.index, Text: body, Page: first.page, PageBreaks: breaks, HeadingPath: r.curPath,
		ByteStart: first.start, ByteEnd: last.end() - int64(trailing), Tokens: r.cost,
	}
	if r.cfg.Unit == ingest.ChunkChars {
		seg.Tokens = estimateTokens(body)
	}
	if r.cfg.Window > 0 {
		seg.Around = [2]int{max(0, r.index-r.cfg.Window), r.index + r.cfg.Window}
	}
	r.index++
	if r.cfg.ParentSize == 0 {
		return append(out, seg)
	}
	r.opened(seg, r.cost)
	return out
}
