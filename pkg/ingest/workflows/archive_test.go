package workflows_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// zipped is a ZIP file of names and contents.
func zipped(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := z.CreateHeader(&zip.FileHeader{Name: files[i], Method: zip.Deflate, NonUTF8: !strings.Contains(files[i], "ü")})
		require.NoError(t, err)
		_, err = io.WriteString(f, files[i+1])
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

// tarred is a TAR file of names and contents.
func tarred(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "folder/", Typeflag: tar.TypeDir, Mode: 0o755}))
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "link.txt", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}))
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: files[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[i+1]))}))
		_, err := io.WriteString(w, files[i+1])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.String()
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

// received is an archive's file, and the task that was made with it.
func (b *bench) received(name, content string) (ingest.ReceivedFile, taskstate.Task) {
	b.t.Helper()
	f := b.Receive(name, content)
	require.True(b.t, ingest.IsArchive(f.MediaType), f.MediaType)
	task := b.task()
	task.ID, task.Fence = f.ID, 1
	return f, task
}

func (b *bench) unpacked(f ingest.ReceivedFile, task taskstate.Task, more string) (u workflows.Unpacked, err error) {
	b.t.Helper()
	text, err := json.Marshal(workflows.FileOf(f))
	require.NoError(b.t, err)
	out, err := b.run(task, workflows.IngestArchive, fmt.Sprintf(`{"file":%s%s}`, text, more))
	if err == nil {
		require.NoError(b.t, json.Unmarshal(out, &u))
	}
	return u, err
}

func names(entries []workflows.UnpackedFile) (all []string) {
	for _, e := range entries {
		if e.Error != nil {
			all = append(all, e.Name+" "+e.Error.Code)
		} else {
			all = append(all, e.Name)
		}
	}
	return all
}

// Each file of an archive is a document of its own; one that cannot be does not lose the others.
func TestAnArchiveIsTakenInFileByFile(t *testing.T) {
	t.Parallel()
	gbk, err := simplifiedchinese.GBK.NewEncoder().String("报告/合同和附件的目录.txt")
	require.NoError(t, err)
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		files := []string{
			"a/one.txt", "One is here.", "über.txt", "Two is here.", gbk, "Three is here.", "__MACOSX/a/._one.txt", "x", "a/.DS_Store", "x",
			"empty.txt", "", "again.txt", "One is here.", `win\dir\four.txt`, "Four is here.", "../../etc/passwd.txt", "Five is here.",
		}
		f, task := b.received("all.zip", zipped(t, files...))
		got, err := b.unpacked(f, task, `,"metadata":{"lang":"en"}`)
		require.NoError(t, err)
		require.Equal(t, []int{7, 5, 1, 1}, []int{got.Files, got.Accepted, got.Duplicates, got.Refused})
		require.Equal(t, []string{"empty.txt EMPTY_FILE", "a/one.txt", "über.txt", "报告/合同和附件的目录.txt", "again.txt", "win/dir/four.txt", "../../etc/passwd.txt"}, names(got.Entries))
		require.Equal(t, got.Entries[1].TaskID, got.Entries[4].TaskID)
		require.True(t, got.Entries[4].Duplicate)
		_, err = w.Files.Open(f.ID)
		require.Error(t, err, "the archive is gone")
		for _, e := range got.Entries[1:] {
			require.Equal(t, taskstate.StatusQueued, w.Task(e.TaskID).Status)
		}
		d := w.Document(got.Entries[6].DocumentID)
		require.Equal(t, "passwd.txt", d.FileName)
		require.JSONEq(t, `{"lang":"en"}`, string(d.Metadata))

		f, task = b.received("all.tar.gz", gzipped(t, tarred(t, "folder/six.txt", "Six is here.", "inner.zip", zipped(t, "x.txt", "x"))))
		got, err = b.unpacked(f, task, "")
		require.NoError(t, err)
		require.Equal(t, []string{"inner.zip UNSUPPORTED_TYPE", "folder/six.txt"}, names(got.Entries), "no link, no folder, no archive in an archive")
		f, task = b.received("seven.txt.gz", gzipped(t, "Seven is here."))
		got, err = b.unpacked(f, task, "")
		require.NoError(t, err)
		require.Equal(t, []string{"seven.txt"}, names(got.Entries))
		w.CheckFiles()
	})
}

// What an attempt has taken in before it broke off is not taken in twice, whatever became of it meanwhile.
func TestAnArchiveIsTakenInOnce(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		var files []string
		for i := range 6 {
			files = append(files, fmt.Sprintf("%d.txt", i), fmt.Sprintf("Number %d.", i))
		}
		f, task := b.received("all.tar", tarred(t, files...))
		text, err := json.Marshal(workflows.FileOf(f))
		require.NoError(t, err)
		reports := 0
		require.PanicsWithValue(t, "dies", func() {
			_, _ = b.all[workflows.IngestArchive].Run(t.Context(), workflow.Run{
				Task: task, Key: task.ID, Payload: json.RawMessage(`{"file":` + string(text) + `,"force":true}`),
				Report: func(taskstate.Progress) {
					if reports++; reports == 4 {
						panic("dies")
					}
				},
			})
		})
		require.Equal(t, 3, w.Number("SELECT COUNT(*) FROM knowledge_document"))
		first := w.Number("SELECT COUNT(*) FROM ingest_task")
		w.Advance(48 * 60 * 60 * 1e9)
		w.SweepAll()
		task.Fence = 2
		got, err := b.unpacked(f, task, `,"force":true`)
		require.NoError(t, err)
		require.Equal(t, []int{6, 6, 0}, []int{got.Files, got.Accepted, got.Refused})
		require.Equal(t, first+3, w.Number("SELECT COUNT(*) FROM ingest_task"))
		require.Equal(t, 6, w.Number("SELECT COUNT(*) FROM knowledge_document"))
	})
}

// Damage, bombs and archives of nothing are told; what stood before the damage is taken in.
func TestArchivesThatAreNotWhole(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		whole := tarred(t, "one.txt", "One is here.", "two.txt", strings.Repeat("Two is here. ", 400))
		f, task := b.received("cut.tar", whole[:len(whole)-4000])
		got, err := b.unpacked(f, task, "")
		require.NoError(t, err)
		require.Equal(t, []string{"two.txt CORRUPT", "cut.tar CORRUPT", "one.txt"}, names(got.Entries))

		f, task = b.received("none.zip", zipped(t, "folder/", "", "__MACOSX/x", "x"))
		_, err = b.unpacked(f, task, "")
		require.Equal(t, string(ingest.CodeEmpty), workflow.Handler{}.Classify(err).Code)
		f, task = b.received("bad.gz", gzipped(t, strings.Repeat("Four is here. ", 1000))[:30])
		got, err = b.unpacked(f, task, "")
		if err == nil {
			require.Equal(t, 1, got.Refused)
		} else {
			require.Equal(t, string(ingest.CodeCorrupt), workflow.Handler{}.Classify(err).Code)
		}

		var many []string
		for i := range 800 {
			many = append(many, fmt.Sprintf("%s%d.bin", strings.Repeat("a long folder/", 20), i), "\x00\x01\x02")
		}
		f, task = b.received("many.zip", zipped(t, many...))
		got, err = b.unpacked(f, task, "")
		require.NoError(t, err)
		require.Equal(t, 800, got.Refused)
		require.Equal(t, 800, len(got.Entries)+got.More)
		text, err := json.Marshal(got)
		require.NoError(t, err)
		require.Less(t, len(text), workflow.MaxResult)
	})
}

// An archive is no version of a document, and no other way in takes it for one.
func TestAnArchiveIsNoDocument(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	b := newPreviewBench(t, w)
	f, _ := b.received("all.zip", zipped(t, "a.txt", "x"))
	_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: f})
	require.Equal(t, ingest.CodeUnsupportedType, ingest.AsFailure(err).Code)
	_, err = w.App.Receive(t.Context(), strings.NewReader(zipped(t, "a.txt", "x")), "program.jar")
	require.Equal(t, ingest.CodeUnsupportedType, ingest.AsFailure(err).Code, "its name says that it is something else")
}

func TestAnArchiveThatBecomesTooLarge(t *testing.T) {
	t.Parallel()
	b := newPreviewBench(t, ingesttest.NewWorld(t, ingesttest.Options{}))
	f, task := b.received("bomb.zip", zipped(t, "zeros.txt", strings.Repeat("0", 65<<20), "three.txt", "Three is here."))
	got, err := b.unpacked(f, task, "")
	require.NoError(t, err)
	require.Equal(t, []string{"zeros.txt LIMIT_EXCEEDED", "three.txt LIMIT_EXCEEDED"}, names(got.Entries))
}
