package archive

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// FuzzZipDirectory walks any archive's directory: what is opened later was within the limits here.
func FuzzZipDirectory(f *testing.F) {
	f.Add(extracttest.DocxOf(f, strings.NewReader("<w:p/>"), "styles", "<x/>"))
	f.Add(extracttest.ManyNames(3))
	f.Add(extracttest.ZipOf(f, "", "x", `..\x`, "y"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		dir, err := ReadDirectory(r, int64(len(data)))
		if err != nil || dir.CheckLimits() != nil {
			return
		}
		seen := 0
		_ = dir.Each(r, func(m Member) bool {
			seen++
			_ = m.CheckLimits()
			return true
		})
		require.LessOrEqual(t, seen, MaxEntries)
		require.LessOrEqual(t, seen*entryBytes, len(data))
	})
}

// TestADirectoryOfMoreThanItDeclares counts what the directory's end says, and holds none of it: the number is
// compared modulo 65,536 by archive/zip, which would keep 70,000 entries in memory.
func TestADirectoryOfMoreThanItDeclares(t *testing.T) {
	many := extracttest.ManyNames(70_000)
	end := make([]byte, endRecordBytes)
	copy(end, "PK\x05\x06")
	data := many[:len(many)-endRecordBytes-zip64LocatorSize-zip64RecordSize]
	binary.LittleEndian.PutUint16(end[8:], 70_000-65_536)
	binary.LittleEndian.PutUint16(end[10:], 70_000-65_536)
	binary.LittleEndian.PutUint32(end[12:], uint32(len(data)-30))
	binary.LittleEndian.PutUint32(end[16:], 30)
	data = append(data, end...)
	r := bytes.NewReader(data)
	dir, err := ReadDirectory(r, int64(len(data)))
	require.NoError(t, err)
	require.NoError(t, dir.CheckLimits())
	seen := 0
	visit := func(Member) bool { seen++; return true }
	require.NoError(t, dir.Each(r, visit))
	require.Equal(t, 70_000-65_536, seen)
	require.Less(t, testing.AllocsPerRun(3, func() { _ = dir.Each(r, visit) }), 20_000.0)
}

func TestDirectoriesThatAreRead(t *testing.T) {
	t.Parallel()
	plain := extracttest.ZipOf(t, "a.txt", "one", "b/c.xml", strings.Repeat("two", 100))
	comment := bytes.Clone(plain)
	comment[len(comment)-2] = 5
	for name, data := range map[string][]byte{
		"as it is":                      plain,
		"with a comment":                append(comment, "hello"...),
		"behind other bytes":            append([]byte(strings.Repeat("#!/bin/sh\n", 50)), plain...),
		"with as many entries as zip64": extracttest.ManyNames(3),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := ReadDirectory(bytes.NewReader(data), int64(len(data)))
			require.NoError(t, err)
			var names []string
			require.NoError(t, dir.Each(bytes.NewReader(data), func(m Member) bool {
				names = append(names, m.Name)
				return true
			}))
			if name == "with as many entries as zip64" {
				require.Equal(t, []string{"x1000000.xml", "x1000001.xml", "x1000002.xml"}, names)
				return
			}
			require.Equal(t, []string{"a.txt", "b/c.xml"}, names)
		})
	}
	seen := 0
	dir, err := ReadDirectory(bytes.NewReader(plain), int64(len(plain)))
	require.NoError(t, err)
	require.NoError(t, dir.Each(bytes.NewReader(plain), func(Member) bool { seen++; return false }))
	require.Equal(t, 1, seen, "who has seen enough ends it")
}

func TestDamagedDirectoriesAreRefused(t *testing.T) {
	t.Parallel()
	plain := extracttest.ZipOf(t, "a.txt", "one", "b.txt", "two")
	change := func(edit func([]byte)) []byte {
		data := bytes.Clone(plain)
		edit(data)
		return data
	}
	end := len(plain) - endRecordBytes
	first := bytes.Index(plain, []byte("PK\x01\x02"))
	for name, data := range map[string][]byte{
		"cut off in the end record":        plain[:len(plain)-1],
		"cut off before it":                plain[:end],
		"nothing":                          nil,
		"a directory larger than the file": change(func(b []byte) { binary.LittleEndian.PutUint32(b[end+12:], 1<<30) }),
		"an entry that is none":            change(func(b []byte) { b[first] = 'X' }),
		"more entries than there are":      change(func(b []byte) { binary.LittleEndian.PutUint16(b[end+10:], 9) }),
		"a name beyond the directory":      change(func(b []byte) { binary.LittleEndian.PutUint16(b[first+28:], 60_000) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bytes.NewReader(data)
			dir, err := ReadDirectory(r, int64(len(data)))
			if err == nil {
				err = dir.Each(r, func(Member) bool { return true })
			}
			require.Error(t, err)
		})
	}
}

func TestDeclaredLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		check error
		fine  bool
	}{
		"many entries":          {Directory{entries: MaxEntries + 1}.CheckLimits(), false},
		"as many as allowed":    {Directory{entries: MaxEntries, size: maxDirectoryBytes}.CheckLimits(), true},
		"a large directory":     {Directory{entries: 1, size: maxDirectoryBytes + 1}.CheckLimits(), false},
		"a large member":        {Member{Name: "x", size: MaxPartBytes + 1, compressed: MaxPartBytes}.CheckLimits(), false},
		"a bomb":                {Member{Name: "x", size: 200 << 20, compressed: 1 << 10}.CheckLimits(), false},
		"a bomb of no bytes":    {Member{Name: "x", size: 200 << 20}.CheckLimits(), false},
		"small and well packed": {Member{Name: "x", size: 1 << 20, compressed: 10}.CheckLimits(), true},
	} {
		if c.fine {
			require.NoError(t, c.check, name)
			continue
		}
		extracttest.RequirePermanent(t, c.check, ingest.CodeLimitExceeded)
	}
}
