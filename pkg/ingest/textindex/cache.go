package textindex

import (
	"container/list"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

const (
	// cacheShare: a process keeps this part of the memory that it may use, and cacheLeast if that is less.
	cacheShare = 4
	cacheLeast = 64 << 20
	// cacheIdle is how long something is kept that no search uses: the bytes of parts that were merged, for one.
	cacheIdle = 15 * time.Minute
	// cacheOnce is kept by a merge or a check, which read all bytes once.
	cacheOnce = 32 << 20
)

// cacheBytes bounds what a process keeps of the parts that its searches have read.
func cacheBytes() int { return max(cacheLeast, int(debug.SetMemoryLimit(-1)/cacheShare)) }

// cache keeps what was read last, up to a number of bytes. Parts never change, so nothing in it is ever wrong.
type cache struct {
	mu    sync.Mutex
	most  int
	now   func() time.Time
	bytes int
	order *list.List            // the last used first
	items map[key]*list.Element // of *item
}

// key is a chunk of a part; opened is the open part itself.
type key struct {
	part string
	seq  int
}

const opened = -1

// item is what the cache keeps.
type item struct {
	key
	data []byte
	part *part.Part
	size int
	used time.Time
}

func newCache(most int) *cache {
	return &cache{most: most, now: time.Now, order: list.New(), items: map[key]*list.Element{}}
}

// find returns an item and notes its use; an empty item when it is not there.
func (c *cache) find(k key) (*item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[k]
	if !ok {
		return &item{}, false
	}
	c.order.MoveToFront(e)
	i := e.Value.(*item) //nolint:errcheck // nothing else is kept
	i.used = c.now()
	return i, true
}

func (c *cache) has(k key) bool {
	_, ok := c.find(k)
	return ok
}

// get returns a chunk, nil when it is not there.
func (c *cache) get(k key) []byte {
	i, _ := c.find(k)
	return i.data
}

func (c *cache) part(id string) (*part.Part, bool) {
	i, ok := c.find(key{id, opened})
	return i.part, ok
}

func (c *cache) put(k key, data []byte) {
	c.keep(&item{key: k, data: data, size: len(data) + 200})
}

func (c *cache) putPart(id string, p *part.Part) {
	c.keep(&item{key: key{id, opened}, part: p, size: p.Memory()})
}

// keep adds an item and drops those that were not used for longest.
func (c *cache) keep(i *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.items[i.key]; known {
		return
	}
	i.used = c.now()
	c.items[i.key] = c.order.PushFront(i)
	c.bytes += i.size
	for c.order.Len() > 1 {
		last := c.order.Back().Value.(*item) //nolint:errcheck // nothing else is kept
		if c.bytes <= c.most && i.used.Sub(last.used) < cacheIdle {
			return
		}
		c.order.Remove(c.order.Back())
		delete(c.items, last.key)
		c.bytes -= last.size
	}
}
