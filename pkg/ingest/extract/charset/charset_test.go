package charset_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// read decodes data as Find says.
func read(t *testing.T, data []byte, hint func([]byte) string) (name, text string) {
	t.Helper()
	in := &document.Input{File: bytes.NewReader(data), Size: int64(len(data))}
	c, err := charset.Find(in, hint)
	require.NoError(t, err)
	r, err := c.Reader(in.Stream())
	require.NoError(t, err)
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	return c.Name, string(out)
}

func encoded(t *testing.T, e encoding.Encoding, text string) []byte {
	t.Helper()
	out, err := e.NewEncoder().Bytes([]byte(text))
	require.NoError(t, err)
	return out
}

const (
	chinese  = "持久化异步入库任务把文档切成段落，再写入向量库。每个任务都有租约，过期之后由别的进程接管。"
	big5     = "這是一個測試文件，內容是繁體中文。系統會把文件切成段落，然後寫入資料庫。"
	japanesE = "これは日本語の文書です。タスクは必ず終わりの状態になります。失敗したら待ってからもう一度やります。"
	koreaN   = "이것은 한국어 문서입니다. 작업은 실패하면 기다렸다가 다시 실행됩니다. 결과는 한 번만 보입니다."
	russian  = "Это русский текст. Задача выполняется снова, если она не удалась. Результат виден один раз."
	german   = "Größe, Maß und Äußerungen: über die Brücke führt kein anderer Weg als dieser hier."
)

func TestFindTellsCharsetsByTheirBytes(t *testing.T) {
	t.Parallel()
	utf16le := unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	for name, c := range map[string]struct {
		data []byte
		want string // the text
		is   string
	}{
		"plain ASCII":        {[]byte("a text"), "a text", "utf-8"},
		"UTF-8":              {[]byte(chinese), chinese, "utf-8"},
		"UTF-8 with a mark":  {[]byte("\xEF\xBB\xBF" + german), german, "utf-8"},
		"UTF-16 with a mark": {append([]byte{0xFF, 0xFE}, encoded(t, utf16le, chinese)...), chinese, "utf-16le"},
		"UTF-16, other end": {
			append([]byte{0xFE, 0xFF}, encoded(t, unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), german)...), german, "utf-16be",
		},
		"UTF-32 with a mark": {
			append([]byte{0xFF, 0xFE, 0, 0}, encoded(t, utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM), german)...), german, "utf-32le",
		},
		"UTF-32, other end": {
			append([]byte{0, 0, 0xFE, 0xFF}, encoded(t, utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM), german)...), german, "utf-32be",
		},
		"GB18030":   {encoded(t, simplifiedchinese.GB18030, chinese), chinese, "gb18030"},
		"Big5":      {encoded(t, traditionalchinese.Big5, strings.Repeat(big5, 3)), strings.Repeat(big5, 3), "big5"},
		"Shift JIS": {encoded(t, japanese.ShiftJIS, japanesE), japanesE, "shift_jis"},
		"EUC-JP":    {encoded(t, japanese.EUCJP, strings.Repeat(japanesE, 3)), strings.Repeat(japanesE, 3), "euc-jp"},
		"EUC-KR":    {encoded(t, korean.EUCKR, koreaN), koreaN, "euc-kr"},
		"Cyrillic":  {encoded(t, charmap.Windows1251, russian), russian, "windows-1251"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is, text := read(t, c.data, nil)
			require.Equal(t, c.want, text)
			require.Equal(t, c.is, is)
		})
	}
}

func TestAHintIsForBytesThatAreNoUTF8(t *testing.T) {
	t.Parallel()
	hint := func(label string) func([]byte) string { return func([]byte) string { return label } }
	is, text := read(t, encoded(t, charmap.Windows1252, german), hint("iso-8859-1"))
	require.Equal(t, german, text)
	require.Equal(t, "windows-1252", is)
	is, text = read(t, []byte(chinese), hint("iso-8859-1"))
	require.Equal(t, chinese, text, "valid UTF-8 is believed, whatever the document says of itself")
	require.Equal(t, "utf-8", is)
	is, _ = read(t, append([]byte{0xFF, 0xFE}, "a\x00b\x00"...), hint("gbk"))
	require.Equal(t, "utf-16le", is, "a mark is believed before a hint")
	is, text = read(t, encoded(t, simplifiedchinese.GB18030, chinese), hint("no such charset"))
	require.Equal(t, chinese, text, "a hint that names nothing is no hint")
	require.Equal(t, "gb18030", is)
}

func TestALabelThatGivesNonsenseIsNotBelieved(t *testing.T) {
	t.Parallel()
	arabic := strings.Repeat("هذا نص عربي قصير يقرأ كما هو مكتوب. لا يضيع منه حرف واحد أبدا. ", 4)
	french := strings.Repeat("Le cafétier français a été très élégant à Noël, où l'été fut déjà âgé. ", 4)
	for name, c := range map[string]struct {
		data        []byte
		label, want string
	}{
		"Cyrillic as Latin":       {encoded(t, charmap.Windows1251, strings.Repeat(russian, 3)), "iso-8859-1", strings.Repeat(russian, 3)},
		"Chinese as Latin":        {encoded(t, simplifiedchinese.GB18030, strings.Repeat(chinese, 3)), "iso-8859-1", strings.Repeat(chinese, 3)},
		"Chinese as Arabic":       {encoded(t, simplifiedchinese.GB18030, strings.Repeat(chinese, 3)), "windows-1256", strings.Repeat(chinese, 3)},
		"French as Arabic":        {encoded(t, charmap.Windows1252, french), "windows-1256", french},
		"Arabic, rightly":         {encoded(t, charmap.Windows1256, arabic), "windows-1256", arabic},
		"French, rightly":         {encoded(t, charmap.Windows1252, french), "iso-8859-1", french},
		"damaged UTF-8 as Arabic": {[]byte(arabic + "\xff" + arabic), "windows-1256", arabic + "\uFFFD" + arabic},
		"damaged UTF-8 as Latin":  {[]byte(arabic + "\xff" + arabic), "iso-8859-1", arabic + "\uFFFD" + arabic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, text := read(t, c.data, func([]byte) string { return c.label })
			require.Equal(t, c.want, text)
		})
	}
}

func TestDamagedUTF8StaysUTF8(t *testing.T) {
	t.Parallel()
	// Broken bytes late in a large file, at the edges of the blocks that are scanned.
	for _, at := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 100_000} {
		text := []byte(strings.Repeat(chinese, 1_500))
		text[at] = 0xFF
		is, got := read(t, text, nil)
		require.Equal(t, "utf-8", is, at)
		require.Contains(t, got, "\uFFFD")
		require.GreaterOrEqual(t, strings.Count(got, chinese), 1_499)
	}
}

func TestBytesOfNoCharsetAreRefused(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"\x81\x20\x81\x20\xff\xff\x81", "\xff\xff\xff\xff\x00\x01", "a\x00\x01\x02\xffb\x00"} {
		_, err := charset.Find(&document.Input{File: strings.NewReader(data), Size: int64(len(data))}, nil)
		extracttest.RequirePermanent(t, err, ingest.CodeEncoding)
	}
	short := &document.Input{File: strings.NewReader("abc"), Size: 10}
	_, err := charset.Find(short, nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a file that is shorter than it says is no charset's fault")
}

func TestLabels(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"UTF-8": "utf-8", " utf-8-sig ": "utf-8", "ascii": "utf-8", "GB2312": "gb18030", "gbk": "gb18030", "hz-gb-2312": "gb18030", "utf-16": "utf-16le",
		"UTF-16BE": "utf-16be", "utf-32": "utf-32le", "utf-32be": "utf-32be", "cp866": "ibm866", "CP949": "euc-kr", "uhc": "euc-kr", "latin1": "windows-1252",
	} {
		c, ok := charset.Named(label)
		require.True(t, ok, label)
		require.Equal(t, want, c.Name, label)
	}
	for _, label := range []string{"", "klingon", "\x00", strings.Repeat("x", 1<<16)} {
		_, ok := charset.Named(label)
		require.False(t, ok, "%.20q", label)
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range extracttest.Samples(f) {
		if strings.HasPrefix(s.File, "txt_") {
			f.Add(extracttest.CorpusFile(f, s.File), "")
		}
	}
	f.Add([]byte("\xff\xfea"), "utf-16")
	f.Fuzz(func(t *testing.T, data []byte, label string) {
		in := &document.Input{File: bytes.NewReader(data), Size: int64(len(data))}
		c, err := charset.Find(in, func([]byte) string { return label })
		if err != nil {
			extracttest.RequirePermanent(t, err, ingest.CodeEncoding)
			return
		}
		r, err := c.Reader(in.Stream())
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err, "what was found decodes anything: broken bytes become replacement characters")
		require.LessOrEqual(t, len(text), 8*len(data)+8)
	})
}

func TestWholeRunesKeepsWhatIsWhole(t *testing.T) {
	t.Parallel()
	for text, cut := range map[string]string{
		"": "", "abc": "", "知": "", "a知\xe7": "\xe7", "a\xe7\x9f": "\xe7\x9f", "😀": "", "a\xf0\x9f\x98": "\xf0\x9f\x98",
		"a\x80\x80\x80\x80\x80": "", "\xff": "", // no character, however it went on
	} {
		whole, rest := charset.WholeRunes(text)
		require.Equal(t, [2]string{text[:len(text)-len(cut)], cut}, [2]string{whole, rest}, "%q", text)
		head, tail := charset.WholeRunes([]byte(text))
		require.Equal(t, [2]string{whole, rest}, [2]string{string(head), string(tail)}, "%q", text)
	}
}
