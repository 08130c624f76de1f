package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab"
)

// orphaned is older than what the sweeper leaves alone in the upload folder.
const orphaned = 25 * time.Hour

// judge waits for rest and looks at everything: rows, logs, versions, segments, vectors, entries, files, payments, processes.
func (t *trial) judge(ctx context.Context) error {
	if err := t.settled(ctx); err != nil {
		return err
	}
	if err := t.audit().Run(ctx); err != nil {
		return err
	}
	if err := t.files(ctx); err != nil {
		return err
	}
	if err := t.payments(ctx); err != nil {
		return err
	}
	if strays := t.Strays(); len(strays) > 0 {
		return fmt.Errorf("%d processes outlived the one that started them: %v", len(strays), strays)
	}
	return nil
}

// files: every row of a stored file has its file with the bytes that it names.
func (l *lane) files(ctx context.Context) error {
	rows, err := l.DB.Reader().QueryContext(ctx, "SELECT path, bytes FROM stored_file")
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	for rows.Next() {
		var path string
		var size int64
		if err := rows.Scan(&path, &size); err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(l.Uploads(), path))
		if err != nil {
			return fmt.Errorf("a stored file's row has no file: %w", err)
		}
		if info.Size() != size {
			return fmt.Errorf("stored file %s has %d bytes, its row says %d", path, info.Size(), size)
		}
	}
	return rows.Err()
}

// payments: no batch of the trial's documents was paid for more often than its task was claimed, and only once
// when the point comes after the ledger.
func (t *trial) payments(ctx context.Context) error {
	type batch struct{ task, texts string }
	paid := map[batch]int{}
	for _, e := range t.Embed.Effects() {
		if e.Paid {
			paid[batch{e.Task, e.TextsHash}]++
		}
	}
	for _, d := range t.docs {
		log, err := lab.Log(ctx, t.DB.Reader(), d.task)
		if err != nil {
			return err
		}
		most := 0
		for _, move := range log {
			if move.To == taskstate.StatusRunning {
				most++
			}
		}
		if t.scene.paid {
			most = 1
		}
		for b, n := range paid {
			if b.task == d.task && n > most {
				return fmt.Errorf("a batch of task %s was paid for %d times, must be at most %d\n%s", d.task, n, most, lab.Chain(log))
			}
		}
	}
	return nil
}

// gone waits until nothing names the trial's deleted documents any more, and looks for their vectors and files.
func gone(ctx context.Context, t *trial) error {
	for _, d := range t.docs {
		err := lab.Until(ctx, settleLimit, 5*lookEvery, func(ctx context.Context) error {
			for _, statement := range []string{
				"SELECT COUNT(*) FROM knowledge_segment WHERE document_id = ?",
				"SELECT COUNT(*) FROM vector_garbage WHERE document_id = ? AND sweep_pass = 0",
				"SELECT COUNT(*) FROM document_version v JOIN stored_file f ON f.id = v.file_id WHERE v.document_id = ?",
			} {
				if n, err := t.count(ctx, statement, d.document); err != nil || n > 0 {
					return errors.Join(err, fmt.Errorf("%d rows of the deleted document %s: %s", n, d.document, statement))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		hits, err := t.client.Search(ctx, d.Base, d.Mark, 5)
		var refused *lab.StatusError
		if err != nil && !errors.As(err, &refused) { // its base may be gone
			return err
		}
		for _, h := range hits {
			if h.DocumentID == d.document {
				return fmt.Errorf("the deleted document %s is found", d.document)
			}
		}
	}
	return nil
}

// count is a SELECT COUNT(*).
func (l *lane) count(ctx context.Context, statement string, args ...any) (n int, err error) {
	err = l.DB.Reader().QueryRowContext(ctx, statement, args...).Scan(&n)
	return n, err
}

// end judges what only all points together show: that the crashed runs made the same segments as undisturbed ones, and that
// the sweeper finds every file that no row names.
func (l *lane) end(ctx context.Context) error {
	if err := l.sameAsClean(ctx); err != nil {
		return err
	}
	return l.noOrphans(ctx)
}

// sameAsClean runs the lane's documents once more in a base of their own.
func (l *lane) sameAsClean(ctx context.Context) error {
	const base = "undisturbed"
	if len(l.clean) == 0 {
		return nil
	}
	if err := l.client.CreateBase(ctx, base); err != nil {
		return err
	}
	for _, d := range l.clean {
		d.Base = base
		if _, err := l.client.Upload(ctx, d); err != nil {
			return err
		}
	}
	if err := l.undisturbed(ctx); err != nil {
		return err
	}
	texts, err := l.texts(ctx)
	if err != nil {
		return err
	}
	for _, d := range l.clean {
		all := texts[d.Name]
		for _, other := range all {
			if other != all[0] {
				return fmt.Errorf("%s: the segments of the crashed run differ from those of an undisturbed one", d.Name)
			}
		}
	}
	return nil
}

// texts are the text hashes of every visible version in their order, by file name.
func (l *lane) texts(ctx context.Context) (map[string][]string, error) {
	rows, err := l.DB.Reader().QueryContext(ctx, `SELECT d.file_name, d.id, s.text_hash FROM knowledge_document d
		JOIN knowledge_segment s ON s.version_id = d.visible_version_id ORDER BY d.id, s.segment_index`)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	hashes := map[[2]string]*strings.Builder{}
	for rows.Next() {
		var name, id, hash string
		if err := rows.Scan(&name, &id, &hash); err != nil {
			return nil, err
		}
		key := [2]string{name, id}
		if hashes[key] == nil {
			hashes[key] = &strings.Builder{}
		}
		hashes[key].WriteString(hash)
	}
	out := map[string][]string{}
	for key, b := range hashes {
		out[key[0]] = append(out[key[0]], b.String())
	}
	return out, rows.Err()
}

// noOrphans lets a day pass for the upload folder: files that died uploads left go, those of rows stay.
func (l *lane) noOrphans(ctx context.Context) error {
	entries, err := os.ReadDir(l.Uploads())
	if err != nil {
		return err
	}
	old := time.Now().Add(-orphaned)
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(l.Uploads(), e.Name()), old, old); err != nil {
			return err
		}
	}
	sweeper, err := l.Start("reclaimer")
	if err != nil {
		return err
	}
	defer sweeper.Kill()
	return lab.Until(ctx, settleLimit, 100*time.Millisecond, func(ctx context.Context) error {
		rows, err := l.count(ctx, "SELECT COUNT(*) FROM stored_file")
		if err != nil {
			return err
		}
		entries, err := os.ReadDir(l.Uploads())
		if err != nil {
			return err
		}
		stored := 0
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				stored++
			}
		}
		if stored != rows {
			return fmt.Errorf("%d files stand for %d rows in %s", stored, rows, l.Uploads())
		}
		return l.files(ctx)
	})
}
