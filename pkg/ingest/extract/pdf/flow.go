package pdf

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// brokenWord is what PDFium writes in place of a hyphen that a line end put into a word.
	brokenWord = "\uFFFE"
	// maxHyphenated bounds the memory of words written with a hyphen.
	maxHyphenated = 10_000
	// shortLine is the share of a page's longest line below which a line may end a paragraph.
	shortLine = 0.75
	// learnPages and learnBytes bound the pages whose looks are learned before the first is laid out.
	learnPages, learnBytes = 24, 4 << 20
	// lineBytes is what a line takes beside its text.
	lineBytes = 200
	// fewMarks is the number of bookmarks below which an outline says nothing: it names the document.
	fewMarks = 3
)

// pageFlow turns the lines of pages into paragraphs. None goes over a page's end, so that its page is exact;
// the splitter keeps neighbours together.
type pageFlow struct {
	out        *document.Sink
	outline    map[int][]bookmark
	hyphenated map[string]bool // words seen with their hyphen inside a line

	waiting []*pdfPage // pages that were taken last: what they look like is learned before the first is laid out
	held    int        // bytes that they take
	looks   *looks     // nil: not learned yet
	before  []int      // shifts of the page before them

	lastTable table // the next page may go on with it

	running string // first line of the page before: the same again is a running title

	done []string        // finished lines of the paragraph being read: short ones keep their end
	open strings.Builder // lines that run on
	size int             // bytes of both
}

func newPageFlow(out *document.Sink) *pageFlow {
	return &pageFlow{out: out, hyphenated: map[string]bool{}}
}

// pdfPage is a page that waits for the next ones.
type pdfPage struct {
	number int // from 1
	lines  []textLine
	grids  []grid
	fields []string
	shifts []int // of the numbers that its last and first line may be: printed minus real number
}

// page takes one page (number from 1) and lays out those before it that need no look at it.
func (f *pageFlow) page(number int, content pageContent) error {
	p := &pdfPage{number: number, lines: content.lines, grids: content.grids, fields: content.fields}
	for len(p.lines) > 0 && p.lines[len(p.lines)-1].text == "" {
		p.lines = p.lines[:len(p.lines)-1]
	}
	if n := len(p.lines); n > 1 {
		for _, line := range []textLine{p.lines[n-1], p.lines[0]} {
			if printed, ok := pageNumber(line.text); ok {
				p.shifts = append(p.shifts, printed-number)
			}
		}
	}
	for _, l := range p.lines {
		f.held += len(l.text) + lineBytes
	}
	f.waiting = append(f.waiting, p)
	if f.looks == nil && len(f.waiting) < learnPages && f.held < learnBytes {
		return nil
	}
	return f.layOutUpTo(len(f.waiting) - 1)
}

// close lays out the last pages.
func (f *pageFlow) close() error { return f.layOutUpTo(len(f.waiting)) }

// layOutUpTo lays out the first n pages that wait. A page's number is judged by those of its neighbours.
func (f *pageFlow) layOutUpTo(n int) error {
	if f.looks == nil {
		f.looks = &looks{}
		if countMarks(f.outline) < fewMarks {
			f.looks.learn(f.waiting)
		}
	}
	for i, now := range f.waiting[:n] {
		around := f.before
		if i+1 < len(f.waiting) {
			around = append(slices.Clone(around), f.waiting[i+1].shifts...)
		}
		f.before = now.shifts
		if err := f.layOut(now, around); err != nil {
			return err
		}
		if err := f.writeFields(now.number, now.fields); err != nil {
			return err
		}
	}
	f.waiting = slices.Delete(f.waiting, 0, n)
	return nil
}

// layOut turns the lines of a page into blocks; around are the shifts of its neighbours' numbers.
func (f *pageFlow) layOut(p *pdfPage, around []int) error {
	found := tables(p.lines, p.grids)
	lines := f.dropRunning(dropPageNumber(p.lines, p.number, around))
	f.noteHyphens(lines)
	widest := 0
	for _, l := range lines {
		widest = max(widest, lineWidth(l.text))
	}
	marks := f.outline[p.number]
	titles := f.looks.titles(p.number, lines)
	written := make([]bool, len(found))
	for i := 0; i < len(lines); i++ {
		if at := lines[i].table; at > 0 {
			if !written[at-1] {
				written[at-1] = true
				if err := f.table(p.number, found[at-1], i == 0); err != nil {
					return err
				}
			}
			continue
		}
		level, n := headingAt(lines[i:], marks)
		if len(titles) > 0 && titles[0].at == i {
			level, n = f.looks.level(titles[0].style), titles[0].lines
		}
		for len(titles) > 0 && titles[0].at < i+max(n, 1) {
			titles = titles[1:]
		}
		if level > 0 {
			if err := f.heading(p.number, level, lines[i:i+n]); err != nil {
				return err
			}
			i += n - 1
			continue
		}
		if err := f.line(p.number, lines[i].text, widest); err != nil {
			return err
		}
	}
	return f.end(p.number)
}

// headingAt tells whether the lines begin with a title of the page's bookmarks, and over how many lines.
func headingAt(lines []textLine, marks []bookmark) (level, count int) {
	key := ""
	for n := 0; n < min(3, len(lines)) && len(marks) > 0; n++ {
		key += headingKey(lines[n].text)
		if key == "" {
			return 0, 0
		}
		for _, m := range marks {
			if m.key == key {
				return m.level, n + 1
			}
		}
	}
	return 0, 0
}

func (f *pageFlow) heading(page, level int, lines []textLine) error {
	if err := f.end(page); err != nil {
		return err
	}
	return f.out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: level, Page: page, Text: document.Squeeze(f.mend(joined(lines)))})
}

func joined(lines []textLine) string {
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = l.text
	}
	return strings.Join(texts, "\n")
}

// line adds a line to the paragraph being read, or ends it.
// A line much shorter than the page's widest was ended on purpose: in a heading, a table, a list.
func (f *pageFlow) line(page int, line string, widest int) error {
	if line == "" || beginsItem(line) || f.size > document.MaxBlockBytes/2 {
		if err := f.end(page); err != nil {
			return err
		}
	}
	if line == "" {
		return nil
	}
	if f.open.Len() > 0 {
		f.open.WriteByte('\n')
	}
	f.open.WriteString(line)
	f.size += len(line) + 1
	if float64(lineWidth(line)) >= shortLine*float64(widest) || strings.HasSuffix(line, brokenWord) {
		return nil
	}
	if endsSentence(line) {
		return f.end(page)
	}
	f.endLine()
	return nil
}

// endLine finishes the lines that run on.
func (f *pageFlow) endLine() {
	if text := document.Squeeze(f.mend(f.open.String())); text != "" {
		f.done = append(f.done, text)
	}
	f.open.Reset()
}

// end sends the paragraph being read.
func (f *pageFlow) end(page int) error {
	f.endLine()
	text := strings.Join(f.done, "\n")
	f.done, f.size = f.done[:0], 0
	kind := ingest.BlockParagraph
	if beginsItem(text) {
		kind = ingest.BlockList
	}
	return f.out.Block(ingest.Block{Kind: kind, Page: page, Text: text})
}

// lineWidth counts columns: East Asian characters take two.
func lineWidth(line string) int {
	n := 0
	for _, r := range line {
		n++
		if r >= 0x1100 && (document.Wide(r) || unicode.Is(unicode.Hangul, r)) {
			n++
		}
	}
	return n
}

// dropRunning drops a page's first line when the page before began with the very same one.
func (f *pageFlow) dropRunning(lines []textLine) []textLine {
	if len(lines) < 3 {
		return lines
	}
	first := lines[0].text
	if first == f.running && lines[0].table == 0 {
		lines = lines[1:]
	}
	f.running = first
	return lines
}

// noteHyphens remembers words that stand with a hyphen inside a line: they keep it when a line end breaks
// them.
func (f *pageFlow) noteHyphens(lines []textLine) {
	for _, l := range lines {
		if !strings.Contains(l.text, "-") || len(f.hyphenated) > maxHyphenated {
			continue
		}
		for _, w := range strings.Fields(l.text) {
			if i := strings.IndexByte(w, '-'); i > 0 && i < len(w)-1 && len(w) < 60 {
				f.hyphenated[hyphenKey(w)] = true
			}
		}
	}
}

func hyphenKey(w string) string {
	return strings.ToLower(strings.TrimFunc(w, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }))
}

// mend joins words broken at line ends: "inter￾national" and "inter-\nnational" become one word,
// with its hyphen if the document writes it so elsewhere.
func (f *pageFlow) mend(text string) string {
	if !strings.Contains(text, brokenWord) && !strings.Contains(text, "-\n") {
		return text
	}
	text = strings.ReplaceAll(text, brokenWord+"\n", brokenWord)
	var b strings.Builder
	for {
		i, width := nextBreak(text)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		left := lastWord(text[:i])
		right, _, _ := strings.Cut(text[i+width:], "\n")
		right, _, _ = strings.Cut(right, " ")
		b.WriteString(text[:i])
		if f.hyphenated[hyphenKey(left+"-"+right)] {
			b.WriteByte('-')
		}
		text = text[i+width:]
	}
}

// nextBreak finds the next broken word: where its hyphen stood and how long the mark is.
func nextBreak(text string) (at, width int) {
	for from := 0; ; {
		mark := strings.Index(text[from:], brokenWord)
		hyphen := strings.Index(text[from:], "-\n")
		switch {
		case mark < 0 && hyphen < 0:
			return -1, 0
		case hyphen < 0 || (mark >= 0 && mark < hyphen):
			return from + mark, len(brokenWord)
		}
		at := from + hyphen
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+2:])
		if unicode.IsLetter(before) && unicode.IsLower(after) {
			return at, 2
		}
		from = at + 2
	}
}

func lastWord(text string) string {
	return text[strings.LastIndexFunc(text, unicode.IsSpace)+1:]
}

// dropPageNumber drops a first or last line that is the page's number: those of a neighbour, whose shifts are around, run on from it or to
// it. A number that stands alone may be a date or the row of a table.
func dropPageNumber(lines []textLine, number int, around []int) []textLine {
	runsOn := func(line textLine) bool {
		printed, ok := pageNumber(line.text)
		return ok && line.table == 0 && slices.Contains(around, printed-number)
	}
	if n := len(lines); n > 1 && runsOn(lines[n-1]) {
		lines = lines[:n-1]
	}
	if len(lines) > 1 && runsOn(lines[0]) {
		lines = lines[1:]
	}
	return lines
}

// pageNumber reads "12", "- 12 -", "Page 12", "12 / 40".
func pageNumber(line string) (printed int, ok bool) {
	s := strings.ToLower(strings.Trim(line, " -–—|"))
	s = strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(s, "page"), "第"))
	s = strings.TrimSpace(strings.TrimSuffix(s, "页"))
	digits, rest := s, ""
	if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits, rest = s[:i], strings.TrimSpace(s[i:])
	}
	if digits == "" || len(digits) > 5 || (rest != "" && !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "of ")) {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

// endsSentence tells whether text ends as a sentence does.
func endsSentence(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text, " \"')]”’」』）"))
	return strings.ContainsRune(".!?:;。！？：；…", r)
}

// beginsItem tells whether a line begins an item of a list.
func beginsItem(line string) bool {
	r, size := utf8.DecodeRuneInString(line)
	// U+F000–F0FF are the bullets of symbol fonts.
	if strings.ContainsRune("•◦▪●○■□‣⁃·", r) || (r >= 0xF000 && r <= 0xF0FF) {
		return true
	}
	if r == '-' || r == '–' || r == '*' {
		return strings.HasPrefix(line[size:], " ")
	}
	return false
}
