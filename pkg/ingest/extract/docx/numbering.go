package docx

import (
	"encoding/xml"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// numberLevels are the levels of a list; Word has nine.
const numberLevels = 9

// numbered says which list a paragraph belongs to and at which level; the zero value: none.
type numbered struct {
	list  string // w:numId; "" none, "0" none although its style has one
	level int    // from 0
}

// numberLevel is how one level of a list is written.
type numberLevel struct {
	start  int
	format string // w:numFmt
	text   string // such as "%1.%2)"
}

// numberings are the lists of word/numbering.xml. It counts the paragraphs of each as they come.
type numberings struct {
	office.Attributes
	kinds  map[string]*[numberLevels]numberLevel // by w:abstractNumId
	kindOf map[string]string                     // w:numId → w:abstractNumId
	counts map[string]*[numberLevels]int         // by w:abstractNumId: lists of one kind go on with its numbers

	kind  string // being read
	list  string
	level int
}

func newNumberings() *numberings {
	return &numberings{kinds: map[string]*[numberLevels]numberLevel{}, kindOf: map[string]string{}, counts: map[string]*[numberLevels]int{}, level: -1}
}

// Start implements office.Visitor.
func (n *numberings) Start(name string, attrs []xml.Attr) error {
	val := office.Attr(attrs, "val")
	switch name {
	case "abstractNum":
		if len(n.kinds) > archive.MaxEntries {
			return document.OverLimit("more than %d kinds of lists", archive.MaxEntries)
		}
		n.kind, n.list = office.Attr(attrs, "abstractNumId"), ""
		n.kinds[n.kind] = &[numberLevels]numberLevel{}
	case "num":
		n.list, n.kind = office.Attr(attrs, "numId"), ""
	case "abstractNumId":
		if n.list != "" && len(n.kindOf) <= archive.MaxEntries {
			n.kindOf[n.list] = val
		}
	case "lvl":
		n.level = levelOf(office.Attr(attrs, "ilvl"))
		n.at(func(l *numberLevel) { l.start = 1 })
	case "start":
		if v, err := strconv.Atoi(val); err == nil && v >= 0 && v < 1<<20 {
			n.at(func(l *numberLevel) { l.start = v })
		}
	case "numFmt":
		n.at(func(l *numberLevel) { l.format = val })
	case "lvlText":
		n.at(func(l *numberLevel) { l.text = val[:min(len(val), 64)] })
	}
	return nil
}

// at changes the level of the kind that is being read.
func (n *numberings) at(change func(*numberLevel)) {
	if kind := n.kinds[n.kind]; kind != nil && n.kind != "" && n.level >= 0 {
		change(&kind[n.level])
	}
}

// End implements office.Visitor.
func (n *numberings) End(name string) error {
	if name == "lvl" {
		n.level = -1
	}
	return nil
}

// levelOf reads a level; one that does not exist is the first.
func levelOf(val string) int {
	if v, err := strconv.Atoi(val); err == nil && v >= 0 && v < numberLevels {
		return v
	}
	return 0
}

// next counts a paragraph and returns what Word writes before it, such as "2.1"; "": nothing, or a bullet.
func (n *numberings) next(p numbered) string {
	id, known := n.kindOf[p.list]
	kind := n.kinds[id]
	if !known || kind == nil {
		return ""
	}
	counts := n.counts[id]
	if counts == nil {
		counts = &[numberLevels]int{}
		for i := range counts {
			counts[i] = kind[i].start - 1
		}
		n.counts[id] = counts
	}
	counts[p.level]++
	for i := range numberLevels {
		switch {
		case i > p.level:
			counts[i] = kind[i].start - 1
		case i < p.level && counts[i] < kind[i].start:
			counts[i] = kind[i].start // a level that was left out
		}
	}
	text := kind[p.level].text
	if kind[p.level].format == "bullet" || kind[p.level].format == "none" {
		return ""
	}
	for i := range numberLevels {
		if mark := "%" + strconv.Itoa(i+1); strings.Contains(text, mark) {
			text = strings.ReplaceAll(text, mark, formatNumber(counts[i], kind[i].format))
		}
	}
	return strings.TrimSpace(text)
}

// formatNumber writes a number as a level wants it; a format that is not known is decimal.
func formatNumber(n int, format string) string {
	switch format {
	case "lowerLetter", "upperLetter":
		if n < 1 || n > 26*50 {
			break
		}
		s := strings.Repeat(string(rune('a'+(n-1)%26)), 1+(n-1)/26)
		if format == "upperLetter" {
			s = strings.ToUpper(s)
		}
		return s
	case "lowerRoman", "upperRoman":
		if n < 1 || n > 3999 {
			break
		}
		s := roman(n)
		if format == "lowerRoman" {
			s = strings.ToLower(s)
		}
		return s
	case "decimalZero":
		if n < 10 {
			return "0" + strconv.Itoa(n)
		}
	}
	return strconv.Itoa(n)
}

// roman writes 1 to 3999.
func roman(n int) string {
	var b strings.Builder
	for _, r := range []struct {
		value int
		sign  string
	}{{1000, "M"}, {900, "CM"}, {500, "D"}, {400, "CD"}, {100, "C"}, {90, "XC"}, {50, "L"}, {40, "XL"}, {10, "X"}, {9, "IX"}, {5, "V"}, {4, "IV"}, {1, "I"}} {
		for n >= r.value {
			b.WriteString(r.sign)
			n -= r.value
		}
	}
	return b.String()
}
