// Package shares counts what each user has open in this process.
package shares

import (
	"sync"
	"time"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// shareRetry is when a user who has too much open is told to come again.
const shareRetry = 5 * time.Second

// Shares counts what each user has open in this process, so that one cannot take what is there for all.
// A limit of 0 is none. It is safe for concurrent use.
type Shares struct {
	streams, uploads, bytes int64 // the limits

	mu   sync.Mutex
	open map[string]*use // by user; only of those who have something open
}

// use is what one user has open.
type use struct{ streams, uploads, bytes int64 }

// New makes the limits of each user.
func New(streams, uploads, bytes int64) *Shares {
	return &Shares{open: map[string]*use{}, streams: streams, uploads: uploads, bytes: bytes}
}

// change adds to what a user has open, unless fits says that it would be too much; how much it would be is asked after the
// addition.
func (s *Shares) change(user string, streams, uploads, bytes int64, fits func(u use) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := use{}
	if known := s.open[user]; known != nil {
		u = *known
	}
	u.streams, u.uploads, u.bytes = u.streams+streams, u.uploads+uploads, u.bytes+bytes
	if fits != nil && !fits(u) {
		return false
	}
	if u == (use{}) {
		delete(s.open, user)
	} else {
		s.open[user] = &u
	}
	return true
}

// Stream opens an event stream of a user; close ends it.
func (s *Shares) Stream(user string) (closeStream func(), err error) {
	if !s.change(user, 1, 0, 0, func(u use) bool { return s.streams == 0 || u.streams <= s.streams }) {
		return nil, overShare(web.CodeUserStreams, "you have %d event streams open here, which is the most (EVENTS_MAX_CLIENTS_PER_USER)", s.streams)
	}
	return func() { s.change(user, -1, 0, 0, nil) }, nil
}

// upload is one upload request of a user while it is being received.
type upload struct {
	shares *Shares
	user   string
	bytes  int64
}

// Upload opens an upload request of a user.
func (s *Shares) Upload(user string) (*upload, error) {
	if !s.change(user, 0, 1, 0, func(u use) bool { return s.uploads == 0 || u.uploads <= s.uploads }) {
		return nil, overShare(web.CodeUserUploads, "you have %d uploads open here, which is the most (UPLOAD_MAX_OPEN_PER_USER)", s.uploads)
	}
	return &upload{shares: s, user: user}, nil
}

// Take counts bytes that were received.
func (u *upload) Take(n int) error {
	most := u.shares.bytes
	if !u.shares.change(u.user, 0, 0, int64(n), func(now use) bool { return most == 0 || now.bytes <= most }) {
		return overShare(web.CodeUserUploads, "your open uploads hold %d bytes, which is the most (UPLOAD_MAX_BYTES_PER_USER)", most)
	}
	u.bytes += int64(n)
	return nil
}

// Close gives back what the request held.
func (u *upload) Close() { u.shares.change(u.user, 0, -1, -u.bytes, nil) }

// overShare is the answer to what is beyond a limit.
func overShare(code, format string, most int64) error {
	e := web.Errorf(code, format, most)
	e.RetryAfter = shareRetry
	return e
}

// Users is how many users have something open.
func (s *Shares) Users() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}
