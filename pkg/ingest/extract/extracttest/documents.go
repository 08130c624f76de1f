package extracttest

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// Sizes of a zip archive's records, bytes.
const (
	entryHead = 46
	record64  = 56
	locator64 = 20
	endRecord = 22
)

const WordXMLNS = `xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"`

// DocxOf builds a Word document of a body and further parts (name, content, …).
func DocxOf(t testing.TB, body io.Reader, parts ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	add := func(name string, content io.Reader) {
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = io.Copy(w, content)
		require.NoError(t, err)
	}
	add("_rels/.rels", strings.NewReader(`<Relationships><Relationship Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>`))
	rels := `<Relationships>`
	for i := 0; i < len(parts); i += 2 {
		add("word/"+parts[i]+".xml", strings.NewReader(parts[i+1]))
		rels += `<Relationship Type="http://x/` + parts[i] + `" Target="` + parts[i] + `.xml"/>`
	}
	add("word/_rels/document.xml.rels", strings.NewReader(rels+`</Relationships>`))
	if body != nil {
		add("word/document.xml", io.MultiReader(strings.NewReader(`<?xml version="1.0" encoding="UTF-8"?><w:document `+WordXMLNS+`><w:body>`), body, strings.NewReader(`</w:body></w:document>`)))
	}
	require.NoError(t, z.Close())
	return buf.Bytes()
}

// Repeated is a reader of n times the same text.
func Repeated(text string, n int) io.Reader {
	return io.LimitReader(&Loop{Text: text}, int64(n)*int64(len(text)))
}

type Loop struct {
	Text string
	at   int
}

func (l *Loop) Read(buf []byte) (int, error) {
	n := copy(buf, l.Text[l.at:])
	l.at = (l.at + n) % len(l.Text)
	return n, nil
}

// The attack cases that concern the reading of documents, by their numbers in deploy/docs/rules.md.

// ZipOf builds an archive of names and contents.
func ZipOf(t testing.TB, members ...string) []byte { return zipOf(t, zip.Deflate, members) }

// ZipStoredFirst builds an archive whose first member is not compressed, as OpenDocument and EPUB want it.
func ZipStoredFirst(t testing.TB, members ...string) []byte { return zipOf(t, zip.Store, members) }

func zipOf(t testing.TB, first uint16, members []string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for i := 0; i < len(members); i += 2 {
		head := &zip.FileHeader{Name: members[i], Method: zip.Deflate}
		if i == 0 {
			head.Method = first
		}
		w, err := z.CreateHeader(head)
		require.NoError(t, err)
		_, err = io.WriteString(w, members[i+1])
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return buf.Bytes()
}

const SmallBody = `<w:document ` + WordXMLNS + `><w:body><w:p><w:r><w:t>the text</w:t></w:r></w:p></w:body></w:document>`

// OLEFile is a compound file whose directory holds the given stream names.
func OLEFile(names ...string) []byte {
	file := make([]byte, 3*512)
	copy(file, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")
	binary.LittleEndian.PutUint16(file[30:], 9)
	binary.LittleEndian.PutUint32(file[48:], 1) // directory in sector 1
	binary.LittleEndian.PutUint32(file[76:], 0) // allocation table in sector 0
	for i := 512; i < 1024; i += 4 {
		binary.LittleEndian.PutUint32(file[i:], 0xFFFFFFFE)
	}
	for i, name := range names {
		entry := file[1024+128*i:]
		for j, u := range utf16.Encode([]rune(name)) {
			binary.LittleEndian.PutUint16(entry[2*j:], u)
		}
		binary.LittleEndian.PutUint16(entry[64:], uint16(2*len(name)+2))
	}
	return file
}

// OLEStreams is a compound file of streams, each a path ("name", "storage/name" or deeper) and its content, which is filled up with NULs to the
// least size of a stream that has sectors of its own.
func OLEStreams(streams ...string) []byte {
	const sector, free, end = 512, 0xFFFFFFFF, 0xFFFFFFFE
	type entry struct {
		name                string
		kind                byte
		right, child, start uint32
		size                int
	}
	dir := []entry{{name: "Root Entry", kind: 5, right: free, child: free, start: end}}
	last := map[string]int{} // storage → its last child
	add := func(storage string, parent int, e entry) int {
		dir = append(dir, e)
		at := len(dir) - 1
		if before, some := last[storage]; some {
			dir[before].right = uint32(at)
		} else {
			dir[parent].child = uint32(at)
		}
		last[storage] = at
		return at
	}
	var data []byte
	var table []uint32
	storages := map[string]int{"": 0}
	for i := 0; i < len(streams); i += 2 {
		storage, name := "", streams[i]
		for {
			outer, rest, nested := strings.Cut(name, "/")
			if !nested {
				break
			}
			inner := storage + outer + "/"
			if _, known := storages[inner]; !known {
				storages[inner] = add(storage, storages[storage], entry{name: outer, kind: 1, right: free, child: free, start: end})
			}
			storage, name = inner, rest
		}
		content := make([]byte, max(4096, (len(streams[i+1])+sector-1)/sector*sector))
		copy(content, streams[i+1])
		add(storage, storages[storage], entry{name: name, kind: 2, right: free, child: free, start: uint32(len(table)), size: len(content)})
		for range len(content)/sector - 1 {
			table = append(table, uint32(len(table)+1))
		}
		table, data = append(table, end), append(data, content...)
	}
	head := make([]byte, sector)
	copy(head, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")
	binary.LittleEndian.PutUint16(head[24:], 0x3E)
	binary.LittleEndian.PutUint16(head[26:], 3)
	binary.LittleEndian.PutUint16(head[28:], 0xFFFE)
	binary.LittleEndian.PutUint16(head[30:], 9)
	binary.LittleEndian.PutUint16(head[32:], 6)
	binary.LittleEndian.PutUint32(head[48:], uint32(len(table))) // the directory lies behind the streams
	binary.LittleEndian.PutUint32(head[56:], 4096)
	binary.LittleEndian.PutUint32(head[60:], end)
	binary.LittleEndian.PutUint32(head[68:], end)
	for len(dir)%4 != 0 {
		dir = append(dir, entry{right: free, child: free})
	}
	for i, e := range dir {
		raw := make([]byte, 128)
		for j, u := range utf16.Encode([]rune(e.name)) {
			binary.LittleEndian.PutUint16(raw[2*j:], u)
		}
		if e.name != "" {
			binary.LittleEndian.PutUint16(raw[64:], uint16(2*len(e.name)+2))
		}
		raw[66], raw[67] = e.kind, 1
		binary.LittleEndian.PutUint32(raw[68:], free)
		binary.LittleEndian.PutUint32(raw[72:], e.right)
		binary.LittleEndian.PutUint32(raw[76:], e.child)
		binary.LittleEndian.PutUint32(raw[116:], e.start)
		binary.LittleEndian.PutUint32(raw[120:], uint32(e.size))
		data = append(data, raw...)
		if i%4 == 3 {
			table = append(table, uint32(len(table)+1))
		}
	}
	table[len(table)-1] = end
	tables := 1
	for tables*sector/4 < len(table)+tables {
		tables++
	}
	binary.LittleEndian.PutUint32(head[44:], uint32(tables))
	for i := range 109 {
		at := uint32(free)
		if i < tables {
			at = uint32(len(table) + i)
		}
		binary.LittleEndian.PutUint32(head[76+4*i:], at)
	}
	fat := make([]byte, tables*sector)
	for i := range len(fat) / 4 {
		v := uint32(free)
		if i < len(table) {
			v = table[i]
		} else if i < len(table)+tables {
			v = 0xFFFFFFFD
		}
		binary.LittleEndian.PutUint32(fat[4*i:], v)
	}
	return append(append(head, data...), fat...)
}

// CountingReader counts what Detect reads.
type CountingReader struct {
	*bytes.Reader
	N int64
}

func (c *CountingReader) ReadAt(buf []byte, at int64) (int, error) {
	n, err := c.Reader.ReadAt(buf, at)
	c.N += int64(n)
	return n, err
}

// Noise is text that does not compress.
func Noise(n int) io.Reader {
	random := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, n)
	for i := range buf {
		buf[i] = byte('0' + random.IntN(75))
		if buf[i] == '<' || buf[i] == ']' {
			buf[i] = '-'
		}
	}
	return bytes.NewReader(buf)
}

// Lying changes the size that a document's directory declares for its main part.
func Lying(data []byte, size uint32) []byte {
	at := bytes.LastIndex(data, []byte("word/document.xml"))
	binary.LittleEndian.PutUint32(data[at-entryHead+24:], size)
	return data
}

// ManyNames is an archive of n empty members, as other programs than Go's write it.
func ManyNames(n int) []byte {
	buf := append(make([]byte, 0, n*(entryHead+16)+200), "PK\x03\x04"+strings.Repeat("\x00", 26)...)
	start := len(buf)
	head := append([]byte("PK\x01\x02"), make([]byte, entryHead-4)...)
	head[28] = byte(len("x0000000.xml"))
	for i := range n {
		buf = append(buf, head...)
		buf = append(buf, 'x')
		buf = strconv.AppendInt(buf, int64(1_000_000+i), 10)
		buf = append(buf, ".xml"...)
	}
	record := make([]byte, record64+locator64+endRecord)
	copy(record, "PK\x06\x06")
	binary.LittleEndian.PutUint64(record[32:], uint64(n))
	binary.LittleEndian.PutUint64(record[40:], uint64(len(buf)-start))
	binary.LittleEndian.PutUint64(record[48:], uint64(start))
	locator := record[record64:]
	copy(locator, "PK\x06\x07")
	binary.LittleEndian.PutUint64(locator[8:], uint64(len(buf)))
	end := locator[locator64:]
	copy(end, "PK\x05\x06")
	for i := 8; i < 20; i++ {
		end[i] = 0xFF
	}
	return append(buf, record...)
}

// SimplePDF is a PDF of one page with additions to its catalog and a content stream.
func SimplePDF(catalog, content string) []byte {
	return []byte("%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R" + catalog + ">>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n" +
		"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj\n" +
		"4 0 obj<</Length " + strconv.Itoa(len(content)) + ">>stream\n" + content + "\nendstream endobj\n" +
		"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Size 6/Root 1 0 R>>\nstartxref\n0\n%%EOF")
}
