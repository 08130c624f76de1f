package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/lostfs"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	diskBytes = 24 << 20
	// mountFlags: what uploads need, and no more.
	mountFlags = syscall.MS_NODEV | syscall.MS_NOSUID | syscall.MS_NOEXEC
)

// DiskFull fills the file system of the uploads: 507, nothing half-stored, no row; when space is back all goes on.
func DiskFull(ctx context.Context, s *stage.Stage) (string, error) {
	folder := filepath.Join(s.Bench.Run, s.Name+"-uploads")
	unmount, err := smallDisk(folder)
	if err != nil {
		return "", err
	}
	defer unmount()
	refused := 0
	return stage.Storm{
		Opts: world.Options{Env: []string{"UPLOAD_DIR=" + folder}},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			await.Pause(ctx, s.Load/3)
			ballast := filepath.Join(folder, "ballast")
			if err := fill(ballast); err != nil {
				return err
			}
			await.Pause(ctx, s.Load/3)
			var answer *apiclient.StatusError
			if _, err := c.Client.Upload(ctx, apiclient.Text(1_000_000, stage.DocBytes)); !errors.As(err, &answer) || answer.Status != http.StatusInsufficientStorage {
				return fmt.Errorf("an upload without space is answered with %w, must be 507", err)
			}
			if err := os.Remove(ballast); err != nil {
				return err
			}
			await.Pause(ctx, s.Load/3)
			return c.AllRun()
		},
		// The refusals are what this drill wants; the rest of the record is judged as always.
		Forgive: func(load *apiclient.Record) {
			refused = load.Other[http.StatusInsufficientStorage]
			delete(load.Other, http.StatusInsufficientStorage)
		},
		Judge: func(ctx context.Context, c *stage.Cluster, load *apiclient.Record) (string, error) {
			if refused == 0 {
				return "", errors.New("no upload of the load was answered with 507")
			}
			files, err := onlyWhole(ctx, c, folder, load)
			return fmt.Sprintf("%d uploads answered 507, %d files stored, each whole and with its row, no row without an upload", refused, files), err
		},
	}.Run(ctx, s)
}

// smallDisk mounts a small file system in memory; a mount that a killed run left is replaced.
func smallDisk(folder string) (unmount func(), err error) {
	_ = syscall.Unmount(folder, syscall.MNT_DETACH) // mostly there is none
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", mountFlags, fmt.Sprintf("size=%d,mode=0755", diskBytes)); err != nil {
		return nil, fmt.Errorf("mount a small file system on %s: %w (this drill needs to be root with CAP_SYS_ADMIN)", folder, err)
	}
	return func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) }, nil // the folder itself is empty and harmless
}

// fill writes a file until there is no space left.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// stored is a row of an uploaded file.
type stored struct {
	id, name string
	bytes    int64
}

// onlyWhole: every file in the folder is one that a row names, of the size that its row says; every row is of an upload
// that was accepted, or whose outcome is unknown.
func onlyWhole(ctx context.Context, c *stage.Cluster, folder string, load *apiclient.Record) (int, error) {
	rows, err := storedFiles(ctx, c.DB.Reader())
	if err != nil {
		return 0, err
	}
	known := map[string]bool{}
	for _, d := range load.Accepted {
		known[d.Name] = true
	}
	for _, d := range load.Maybe {
		known[d.Name] = true
	}
	for id, row := range rows {
		info, err := os.Stat(filepath.Join(folder, id))
		if err != nil || info.Size() != row.bytes || !known[row.name] {
			return 0, fmt.Errorf("%s (%s, %d bytes by its row, upload accepted: %t): %v, %w", id, row.name, row.bytes, known[row.name], info, err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if _, ok := rows[e.Name()]; !ok && e.Name()[0] != '.' { // readiness keeps a probe there
			return 0, fmt.Errorf("%s is in the upload folder without a row", e.Name())
		}
	}
	return len(rows), nil
}

// storedFiles reads all rows of uploaded files by id.
func storedFiles(ctx context.Context, tx taskstate.Tx) (map[string]stored, error) {
	rows, err := tables.Query(ctx, tx, func(r *sql.Rows) (s stored, err error) { err = r.Scan(&s.id, &s.name, &s.bytes); return s, err },
		`SELECT id, original_name, bytes FROM stored_file`)
	out := map[string]stored{}
	for _, s := range rows {
		out[s.id] = s
	}
	return out, err
}

// PowerLoss kills all services and takes from the upload folder what nobody has flushed, again and again.
// The database keeps what it committed: a row whose file is gone would be a document lost.
func PowerLoss(ctx context.Context, s *stage.Stage) (saw string, err error) {
	api := world.FreeAddr()
	c, err := s.NewCluster(ctx, world.Options{Embedder: &embedtest.Options{}, Env: append([]string{"HTTP_ADDR=" + api}, stage.Patient...)})
	if err != nil {
		return "", err
	}
	uploads, err := mountUploads(c)
	defer func() {
		c.Close() // its processes keep the folder busy
		if uploads != nil {
			err = errors.Join(err, uploads.Close())
		}
	}()
	if err != nil {
		return "", err
	}
	names := []string{"ingest-api", "stream-worker", "stream-worker"}
	for _, name := range names {
		if _, err := c.Add(name); err != nil {
			return "", err
		}
	}
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	stop := stage.Background(ctx, apiclient.Load{Target: apiclient.NewClient("http://" + api), Clients: 4, Bytes: stage.DocBytes, Every: 100 * time.Millisecond})
	cuts := 0
	for end := time.Now().Add(s.Load); time.Now().Before(end) && ctx.Err() == nil; cuts++ {
		await.Pause(ctx, time.Duration(1000+s.Random.IntN(4000))*time.Millisecond)
		for _, name := range []string{"ingest-api", "stream-worker"} {
			for _, p := range c.Of(name) {
				p.Kill()
				c.Drop(p)
			}
		}
		if err := uploads.Cut(); err != nil {
			return "", err
		}
		for _, name := range names {
			if _, err := c.Add(name); err != nil {
				return "", err
			}
		}
		if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
			return "", err
		}
	}
	load := stop()
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	if len(load.Accepted) < 50 {
		return "", fmt.Errorf("only %d documents were accepted: the cuts met no load", len(load.Accepted))
	}
	return fmt.Sprintf("%d power cuts; %s", cuts, stage.Summary(load)), nil
}

// mountUploads puts the file system that forgets where the services look for their uploads.
func mountUploads(c *stage.Cluster) (*lostfs.FS, error) {
	dir := c.Uploads()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	uploads, err := lostfs.Mount(dir)
	if err != nil {
		return nil, fmt.Errorf("the power cut needs /dev/fuse and the right to mount: %w", err)
	}
	return uploads, nil
}
