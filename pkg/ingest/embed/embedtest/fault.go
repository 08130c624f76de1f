package embedtest

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Kind is a way to go wrong.
type Kind string

// The faults.
const (
	Delay     Kind = "delay"      // answers rightly, but Fault.For later
	Throttle  Kind = "throttle"   // 429 with Retry-After: Fault.For (rounded up to seconds); For 0: without
	ThrottleM Kind = "throttle-m" // 429 with retry-after-ms: Fault.For
	Busy      Kind = "busy"       // 503 with Retry-After as for Throttle
	OKError   Kind = "ok-error"   // 200 with {"error":{"message":"Rate limit reached"}}
	Miscount  Kind = "miscount"   // one vector too few
	NaN       Kind = "nan"        // a value that is NaN, as Python writes it
	Null      Kind = "null"       // a value that is null
	Zero      Kind = "zero"       // a vector of zeros
	NoValues  Kind = "no-values"  // a vector without values
	Dimension Kind = "dimension"  // vectors one value shorter
	Hang      Kind = "hang"       // no answer until the caller leaves, the faults are cleared or the server closes; then the connection is cut
	Cut       Kind = "cut"        // the connection is closed in the middle of the body
	Fail      Kind = "fail"       // 500
	Refuse    Kind = "refuse"     // 500 with x-should-retry: false, so that callers try no second time
	Redirect  Kind = "redirect"   // 302 to another host
	Huge      Kind = "huge"       // a body that does not end
)

// Fault is what the server does wrong from Set on.
type Fault struct {
	Kind  Kind
	For   time.Duration // see Kind
	Times int           // requests that it hits; 0: all until Clear
	Match func(Effect) bool

	cleared <-chan struct{} // of a fault that a request met
}

// paid tells whether a real service would have computed, and charged for, the vectors.
func (f Fault) paid() bool {
	switch f.Kind {
	case Throttle, ThrottleM, Busy, OKError, Fail, Refuse, Redirect, Hang, Huge:
		return false
	}
	return true
}

// refuse writes the answer of a fault that gives no vectors; false: the fault has vectors.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, f Fault) (status int, done bool) {
	seconds := strconv.FormatInt(int64((f.For+time.Second-1)/time.Second), 10)
	switch f.Kind {
	case Throttle, ThrottleM:
		if f.Kind == ThrottleM {
			w.Header().Set("Retry-After-Ms", strconv.FormatInt(f.For.Milliseconds(), 10))
		} else if f.For > 0 {
			w.Header().Set("Retry-After", seconds)
		}
		return s.problem(w, http.StatusTooManyRequests, "Rate limit reached for requests"), true
	case Busy:
		if f.For > 0 {
			w.Header().Set("Retry-After", seconds)
		}
		return s.problem(w, http.StatusServiceUnavailable, "service is starting"), true
	case OKError:
		return s.problem(w, http.StatusOK, "Rate limit reached for requests"), true
	case Refuse:
		w.Header().Set("X-Should-Retry", "false")
		return s.problem(w, http.StatusInternalServerError, "the model has crashed"), true
	case Fail:
		return s.problem(w, http.StatusInternalServerError, "the model has crashed"), true
	case Redirect:
		w.Header().Set("Location", "http://redirected.invalid/")
		w.WriteHeader(http.StatusFound)
		return http.StatusFound, true
	case Hang:
		select {
		case <-r.Context().Done():
		case <-f.cleared:
		case <-s.closing:
		}
		panic(http.ErrAbortHandler)
	case Huge:
		s.huge(w)
		return http.StatusOK, true
	}
	return 0, false
}

// huge writes until the other side has enough of it.
func (s *Server) huge(w http.ResponseWriter) {
	block := bytes.Repeat([]byte{' '}, 1<<20)
	for range 1 << 10 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// problem writes an error in the words of the server's shape.
func (s *Server) problem(w http.ResponseWriter, status int, message string) int {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if s.opts.Shape == OpenAI {
		_, _ = fmt.Fprintf(w, `{"error":{"message":%q,"type":"test_error","code":%d}}`, message, status)
	} else {
		_, _ = fmt.Fprintf(w, `{"error":%q,"error_type":"test"}`, message)
	}
	return status
}

// spoil makes the vectors of a fault wrong; what needs another text than a number's is done by spoilNumber.
func (f Fault) spoil(vectors [][]float32) [][]float32 {
	if len(vectors) == 0 {
		return vectors
	}
	last := len(vectors) - 1
	switch f.Kind {
	case Miscount:
		return vectors[:last]
	case Zero:
		vectors[last] = make([]float32, len(vectors[last]))
	case NoValues:
		vectors[last] = []float32{}
	case Dimension:
		for i := range vectors {
			vectors[i] = vectors[i][:len(vectors[i])-1]
		}
	}
	return vectors
}
