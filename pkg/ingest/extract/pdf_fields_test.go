//go:build !race

// One file after another is read, by a child or in the process: nothing runs beside another that the race detector could see.

package extract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
)

// annotated is a PDF of one page with that content and those annotations; forms draw the words that are given. A field inherits from object 6.
func annotated(content string, annots []string, forms ...string) []byte {
	refs, objects := []string{}, []string{
		"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[6 0 R]/DR<</Font<</F1 4 0 R>>>>/DA(/F1 10 Tf)>>>>",
		"<</Type/Pages/Kids[3 0 R]/Count 1>>", "", "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
		pdfgen.Stream("", content), "",
	}
	for i, a := range annots {
		refs = append(refs, fmt.Sprintf("%d 0 R", 7+i))
		objects = append(objects, "<</Type/Annot/Rect[72 300 400 330]/F 4"+a+">>")
	}
	for _, text := range forms {
		objects = append(objects, pdfgen.Stream("/Type/XObject/Subtype/Form/BBox[0 0 328 30]/Resources<</Font<</F1 4 0 R>>>>",
			"BT /F1 10 Tf 2 10 Td ("+text+") Tj ET"))
	}
	kids := strings.Join(refs, " ")
	objects[2] = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F1 4 0 R>>>>/Contents 5 0 R/Annots[" + kids + "]>>"
	objects[5] = "<</FT/Tx/T(parent)/V(inherited value)/Kids[" + kids + "]>>"
	return pdfgen.Objects(objects...)
}

func TestFieldsAndNotesOfAPageAreRead(t *testing.T) {
	t.Parallel()
	const content = "BT /F1 12 Tf 72 700 Td (The page itself has this sentence.) Tj ET"
	field := "/Subtype/Widget/FT/Tx/T(f)"
	for name, c := range map[string]struct {
		annot, want string
		forms       []string
	}{
		"a field that is drawn":       {field + "/V(hidden)/AP<</N 8 0 R>>", "drawn value", []string{"drawn value"}},
		"a signature":                 {"/Subtype/Widget/FT/Sig/T(s)/AP<</N 8 0 R>>", "Signed by Ada", []string{"Signed by Ada"}},
		"a stamp":                     {"/Subtype/Stamp/AP<</N 8 0 R>>", "APPROVED", []string{"APPROVED"}},
		"a free text that is drawn":   {"/Subtype/FreeText/Contents(x)/AP<</N 8 0 R>>", "a note", []string{"a note"}},
		"a free text without picture": {"/Subtype/FreeText/DA(/F1 10 Tf)/Contents(a note of words)", "a note of words", nil},
		"a field without picture":     {field + "/V(filled in)", "filled in", nil},
		"a field's inherited value":   {"/Subtype/Widget/Parent 6 0 R", "inherited value", nil},
		"a choice":                    {"/Subtype/Widget/FT/Ch/Ff 131072/T(c)/Opt[(red)(blue)]/V(blue)", "blue", nil},
		"a password":                  {field + "/Ff 8192/V(secret)", "", nil},
		"a check box":                 {"/Subtype/Widget/FT/Btn/T(b)/V/Yes", "", nil},
		"a hidden field":              {"/F 2/Subtype/Widget/FT/Tx/V(unseen)", "", nil},
		"a comment":                   {"/Subtype/Text/Contents(a reviewer's remark)", "", nil},
		"no dictionary":               {"/Subtype/Widget/AP null/V 17 0 R", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := annotated(content, []string{c.annot}, c.forms...)
			if strings.Contains(c.annot, "/F 2") {
				data = []byte(strings.Replace(string(data), "/F 4/F 2", "/F 2    ", 1))
			}
			_, blocks, err := readByBoth(t, extracttest.WriteTemp(t, "a.pdf", data))
			require.NoError(t, err)
			var texts []string
			for _, b := range blocks {
				require.Equal(t, 1, b.Page)
				texts = append(texts, b.Text)
			}
			want := "The page itself has this sentence."
			if c.want != "" {
				want += " " + c.want
			}
			require.Equal(t, want, strings.Join(strings.Fields(strings.Join(texts, " ")), " "))
		})
	}
}

// The one page of a dynamic form tells its reader to wait. A form that can also be shown as it stands has its text in its pages.
func TestDynamicFormsAreRefused(t *testing.T) {
	t.Parallel()
	form := annotated("BT /F1 12 Tf 72 700 Td (Please wait...) Tj ET", nil)
	for needs, refused := range map[string]bool{"true": true, "false": false} {
		data := strings.Replace(string(form), "/Type/Catalog", "/Type/Catalog/NeedsRendering "+needs, 1)
		data = strings.Replace(data, "/AcroForm<<", "/AcroForm<</XFA 5 0 R", 1)
		_, blocks, err := readByBoth(t, extracttest.WriteTemp(t, "a.pdf", []byte(data)))
		if !refused {
			require.NoError(t, err)
			require.Equal(t, "Please wait...", blocks[0].Text)
			continue
		}
		extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
		require.ErrorContains(t, err, "XFA")
	}
}

func TestAPageOfFieldsOnlyIsNoPicture(t *testing.T) {
	t.Parallel()
	pool := newPool(t, func(c *Config) { c.Parallel = 1 })
	_, blocks, err := extracttest.ExtractPath(t, t.Context(), pool,
		extracttest.WriteTemp(t, "a.pdf", annotated("", []string{"/Subtype/Stamp/AP<</N 8 0 R>>"}, "OK")))
	require.NoError(t, err)
	require.Equal(t, []ingest.Block{{Kind: ingest.BlockParagraph, Page: 1, Text: "OK"}}, blocks)
}

func TestHostileAnnotationsEndSoon(t *testing.T) {
	t.Parallel()
	pool := newPool(t, func(c *Config) { c.Parallel = 1 })
	for name, data := range map[string][]byte{
		"a picture that draws itself": annotated("", []string{"/Subtype/Stamp/AP<</N 8 0 R>>"}, "x) Tj ET /Fm Do BT (y"),
		"a parent that is its child":  annotated("", []string{"/Subtype/Widget/Parent 7 0 R"}),
		"many without anything":       annotated("", make([]string, 20_000)),
		"many fields":                 annotated("", strings.Split(strings.Repeat("/Subtype/Widget/FT/Tx/V(v)\n", 20_000), "\n")),
	} {
		if name == "a picture that draws itself" {
			data = []byte(strings.Replace(string(data), "/BBox[0 0 328 30]/Resources<<", "/BBox[0 0 328 30]/Resources<</XObject<</Fm 8 0 R>>", 1))
		}
		_, _, err := extracttest.ExtractPath(t, t.Context(), pool, extracttest.WriteTemp(t, "a.pdf", data))
		if err != nil {
			extracttest.RequirePermanent(t, err)
		}
	}
}
