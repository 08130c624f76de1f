package extract

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// tikaPage is what Tika 3.2.2 returns for a document in the form of its pages: a NUL as title, a heading, a table.
const tikaPage = `<html xmlns="http://www.w3.org/1999/xhtml"><head><meta name="X-TIKA:Parsed-By" content="org.apache.tika.parser.DefaultParser"/><meta name="Content-Type" content="application/msword"/><title>&#0;</title></head>
<body><h1>一、总体设计
</h1><p>BODYMARK_A backoff.
</p><table><tbody><tr><td><p>Name</p></td><td><p>Value</p></td></tr><tr><td><p>a</p></td><td><p>1</p></td></tr></tbody></table></body></html>`

func newForeignPool(t *testing.T, types []string, service http.HandlerFunc) *Pool {
	t.Helper()
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	return newPool(t, func(c *Config) {
		c.Accept.Kind, c.Accept.Types, c.External.URL = detect.Tika, types, server.URL
	})
}

func TestForeignDocumentsAreConvertedAndReadByOurs(t *testing.T) {
	t.Parallel()
	p := newForeignPool(t, []string{"application/msword"}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tikaPage) })
	ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "legacy.doc"))
	require.NoError(t, err)
	require.Equal(t, []string{"# 一、总体设计", "p BODYMARK_A backoff.", "t Name | Value\na | 1"}, extracttest.Lines(blocks))
	require.Equal(t, "application/msword", ex.MediaType)
	require.Equal(t, "tika+html/3 tika=application/msword", ex.Reader)
	require.Equal(t, "一、总体设计", ex.Title)
	_, blocks, err = extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.txt", []byte("text of ours")))
	require.NoError(t, err)
	require.Equal(t, []string{"p text of ours"}, extracttest.Lines(blocks), "what our readers take stays here")
	_, _, err = extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.xls", extracttest.OLEFile("Root Entry", "Workbook")))
	extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
	_, _, err = extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.doc", extracttest.OLEFile("WordDocument", "EncryptionInfo")))
	extracttest.RequirePermanent(t, err, ingest.CodeEncrypted)
}

// doclingReply is what Docling Serve 1.38.2 returns for a Word document: its title is the name of the file as we sent it.
const doclingReply = `{"document":{"filename":"document.doc","md_content":null,"json_content":null,"html_content":` +
	`"<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"UTF-8\"/>\n<title>document</title>\n<meta name=\"generator\" content=\"Docling HTML Serializer\"/>\n<style>\n    html {\n}\n</style>\n</head>\n<body>\n` +
	`<div class='page'>\n<h2>一、总体设计</h2>\n<p>BODYMARK_A exponential backoff.</p>\n<table><tbody><tr><th colspan=\"2\"><p>a</p>\n<p>b</p></th><th>c</th></tr><tr><td>1</td><td>2</td><td>3</td></tr></tbody></table>\n` +
	`<ul>\n<li>列表甲</li>\n</ul>\n</div>\n</body>\n</html>","text_content":null,"doctags_content":null,"doclang_content":null},` +
	`"status":"success","errors":[],"processing_time":0.066,"timings":{},"confidence":{"parse_score":null}}`

func TestDoclingsPageIsReadWithoutItsTitle(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, doclingReply) }))
	t.Cleanup(server.Close)
	p := newPool(t, func(c *Config) {
		c.Accept.Kind, c.Accept.Types, c.External.URL = detect.Docling, []string{"application/msword"}, server.URL
	})
	ex, blocks, err := extracttest.ExtractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", "legacy.doc"))
	require.NoError(t, err)
	require.Equal(t, []string{"## 一、总体设计", "p BODYMARK_A exponential backoff.", "t a b | a b | c\n1 | 2 | 3", "l 列表甲"}, extracttest.Lines(blocks))
	require.Equal(t, "一、总体设计", ex.Title)
}

func TestATypeOfOursGoesOutWhenItIsNamed(t *testing.T) {
	t.Parallel()
	p := newForeignPool(t, []string{"text/*"}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `<meta name="X-TIKA:Parsed-By"><p>converted `+r.Header.Get("Content-Type"))
	})
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.txt", []byte("text of ours")))
	require.NoError(t, err)
	require.Equal(t, []string{"p converted text/plain"}, extracttest.Lines(blocks))
}

func TestPagesWithoutTextAreEmptyDocuments(t *testing.T) {
	t.Parallel()
	for _, page := range []string{`<html><head><meta name="X-TIKA:Parsed-By"/></head></html>`, `<html><head><meta name="X-Parsed-By"/><title>&#0;</title></head><body/></html>`} {
		p := newForeignPool(t, []string{"text/*"}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
		_, _, err := extracttest.ExtractPath(t, t.Context(), p, extracttest.WriteTemp(t, "a.txt", []byte("x")))
		extracttest.RequirePermanent(t, err, ingest.CodeEmpty)
	}
}

func TestTheServiceNeedsItsAddress(t *testing.T) {
	t.Parallel()
	cfg := NewDefaultConfig()
	cfg.Accept.Kind = detect.Docling
	require.ErrorContains(t, cfg.Validate(), "EXTRACT_URL: must be set")
	cfg.Accept.Kind, cfg.External.URL = detect.KindOff, "http://x"
	require.ErrorContains(t, cfg.Validate(), "EXTRACT_KIND: must be tika or docling")
	cfg.Accept = detect.Config{Kind: "other", Types: []string{"no type"}}
	require.ErrorContains(t, cfg.Validate(), `EXTRACT_KIND: "other"`)
	require.ErrorContains(t, cfg.Validate(), `EXTRACT_TYPES: "no type"`)
}
