// Package lostfs is a file system whose power can be cut: what nobody has flushed by then is gone.
//
// It keeps two pictures of every file and folder: the one that programs see, and the one on the "disk". fsync of a file
// brings its bytes to the disk, fsync of a folder its names; nothing else does. That is stricter than most real file
// systems and just what POSIX promises: a program that is right here is right everywhere.
// It needs /dev/fuse and the right to mount.
package lostfs

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// FS is a mounted file system in memory. It is safe for concurrent use.
type FS struct {
	dir    string
	mu     sync.Mutex // guards bytes and pictures of all nodes
	root   *node
	server *fuse.Server
}

// Mount mounts an empty file system at dir, which exists. Close it.
func Mount(dir string) (*FS, error) {
	f := &FS{dir: dir}
	return f, f.mount(disk{})
}

// disk is what survives: of a folder its entries, of a file its bytes.
type disk struct {
	folder  bool
	entries map[string]disk
	bytes   []byte
	changed time.Time
}

// mount starts with what the disk holds.
func (f *FS) mount(d disk) error {
	f.root = &node{fs: f, start: d.entries}
	server, err := fs.Mount(f.dir, f.root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "lostfs", Name: "lostfs", DirectMountFlags: syscall.MS_NOSUID | syscall.MS_NODEV},
	})
	if err != nil {
		return fmt.Errorf("mount at %s: %w", f.dir, err)
	}
	f.server = server
	return nil
}

// Cut cuts the power and mounts what is left. Files that are still open keep the old file system busy: close them before.
func (f *FS) Cut() error {
	f.mu.Lock()
	left := f.root.onDisk()
	f.mu.Unlock()
	if err := f.Close(); err != nil {
		return err
	}
	return f.mount(left)
}

// Close unmounts.
func (f *FS) Close() error {
	if err := f.server.Unmount(); err != nil {
		return fmt.Errorf("unmount %s: %w", f.dir, err)
	}
	f.server.Wait()
	return nil
}

// node is a file or a folder.
type node struct {
	fs.Inode
	fs    *FS
	start map[string]disk  // a folder's entries at the mount
	live  []byte           // a file's bytes as programs see them
	kept  []byte           // and on the disk
	names map[string]*node // a folder's entries on the disk

	changed time.Time // when its bytes were made or last written; a cut keeps it, flushed or not
}

// The operations that a folder of uploads needs.
var (
	_ fs.NodeOnAdder   = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
)

// OnAdd fills a folder with what the disk holds.
func (n *node) OnAdd(ctx context.Context) {
	n.names = map[string]*node{}
	for name, d := range n.start {
		child := &node{fs: n.fs, start: d.entries, live: d.bytes, kept: d.bytes, changed: d.changed}
		n.AddChild(name, n.NewPersistentInode(ctx, child, fs.StableAttr{Mode: mode(d.folder)}), true)
		n.names[name] = child
	}
}

// mode is the kind of a node.
func mode(folder bool) uint32 {
	if folder {
		return syscall.S_IFDIR
	}
	return syscall.S_IFREG
}

// onDisk is what a cut leaves; fs.mu is held.
func (n *node) onDisk() disk {
	d := disk{folder: n.IsDir(), bytes: append([]byte(nil), n.kept...), entries: map[string]disk{}, changed: n.changed}
	for name, child := range n.names {
		d.entries[name] = child.onDisk()
	}
	return d
}

// add makes an empty child.
func (n *node) add(ctx context.Context, folder bool) *fs.Inode {
	return n.NewPersistentInode(ctx, &node{fs: n.fs, changed: time.Now()}, fs.StableAttr{Mode: mode(folder)})
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, _ string, _, _ uint32, _ *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return n.add(ctx, false), nil, 0, 0
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, _ string, _ uint32, _ *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.add(ctx, true), 0
}

// Unlink implements fs.NodeUnlinker; the tree's owner takes the name away.
func (n *node) Unlink(context.Context, string) syscall.Errno { return 0 }

// Rmdir implements fs.NodeRmdirer.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	if child := n.GetChild(name); child != nil && len(child.Children()) > 0 {
		return syscall.ENOTEMPTY
	}
	return 0
}

// Rename implements fs.NodeRenamer; the tree's owner moves the name.
func (n *node) Rename(context.Context, string, fs.InodeEmbedder, string, uint32) syscall.Errno {
	return 0
}

// Open implements fs.NodeOpener.
func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) { return nil, 0, 0 }

// Read implements fs.NodeReader.
func (n *node) Read(_ context.Context, _ fs.FileHandle, to []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	at = min(at, int64(len(n.live)))
	return fuse.ReadResultData(to[:copy(to, n.live[at:])]), 0
}

// Write implements fs.NodeWriter.
func (n *node) Write(_ context.Context, _ fs.FileHandle, from []byte, at int64) (uint32, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	n.resize(max(int64(len(n.live)), at+int64(len(from))))
	return uint32(copy(n.live[at:], from)), 0 //nolint:gosec // one request is at most a megabyte
}

// resize makes the file that long; fs.mu is held.
func (n *node) resize(size int64) {
	n.changed = time.Now()
	if size <= int64(len(n.live)) {
		n.live = n.live[:size:size]
		return
	}
	n.live = append(n.live, make([]byte, size-int64(len(n.live)))...)
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	out.Mode, out.Size = n.Mode()|0o777, uint64(len(n.live))
	out.SetTimes(nil, &n.changed, &n.changed)
	return 0
}

// Setattr implements fs.NodeSetattrer: the length only.
func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		n.fs.mu.Lock()
		n.resize(int64(size)) //nolint:gosec // a test's file
		n.fs.mu.Unlock()
	}
	return n.Getattr(ctx, f, out)
}

// Fsync implements fs.NodeFsyncer, of files and of folders.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	children := n.Children()
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if !n.IsDir() {
		n.kept = append([]byte(nil), n.live...)
		return 0
	}
	names := map[string]*node{}
	for name, child := range maps.All(children) {
		if c, ok := child.Operations().(*node); ok {
			names[name] = c
		}
	}
	n.names = names
	return 0
}
