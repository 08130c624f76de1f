package ingest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/tasks"
)

// Code names the cause of a failure for users and programs; UPPER_SNAKE, listed with its remedy in the OpenAPI document.
type Code string

// The codes that a document can fail with.
// Permanent ones go to DEAD at once, suspended ones wait for a person (contract §2); the others are tried again.
const (
	CodeEmpty           Code = "EMPTY_FILE"       // permanent: no bytes, or no text in them
	CodeEncrypted       Code = "ENCRYPTED"        // permanent: needs a password
	CodeUnsupportedType Code = "UNSUPPORTED_TYPE" // permanent: no reader for this content
	CodeCorrupt         Code = "CORRUPT"          // permanent: the reader cannot make sense of it
	CodeLimitExceeded   Code = "LIMIT_EXCEEDED"   // permanent: a bomb, or larger than a limit
	CodeNeedsOCR        Code = "NEEDS_OCR"        // permanent: pictures of text only
	CodeEncoding        Code = "ENCODING_UNKNOWN" // permanent: no charset fits
	// CodeDimension: the model's vectors do not fit the base. A person decides (suspended); permanent when the vector store refuses them.
	CodeDimension      Code = "DIMENSION_MISMATCH"
	CodeModelUnusable  Code = "EMBEDDING_MODEL_UNUSABLE" // suspended: the service refuses the model, the key, or every text
	CodeEmbedRejected  Code = "EMBEDDING_REJECTED"       // permanent: the service refuses this text
	CodeExtractCrashed Code = "EXTRACT_CRASHED"          // the child died or ran out of memory or time
	CodeEmbed          Code = "EMBEDDING_UNAVAILABLE"
	CodeVector         Code = "VECTOR_STORE_UNAVAILABLE"
	CodeVectorRejected Code = "VECTOR_STORE_REJECTED" // permanent: the store refuses the request itself
	CodeThrottled      Code = "THROTTLED"
	CodeFileMissing    Code = "FILE_MISSING" // permanent: the stored file is gone
	CodeFileDamaged    Code = "FILE_DAMAGED" // permanent: the stored file has other bytes than were uploaded
	CodeStalled        Code = "STALLED"
	CodeInternal       Code = "INTERNAL"
)

// Failure is an error whose cause is known.
// Err keeps the real cause (lastError); Remedy is one sentence for the user.
// A Failure with RetryAfter > 0 is a throttle: it counts no attempt.
type Failure struct {
	Code       Code
	Permanent  bool
	Suspend    bool // no fault of the document: a person has to look, and no attempt is counted
	Throttled  bool
	RetryAfter time.Duration // named by the service; 0 when it named none
	Remedy     string
	Err        error
}

// Error is the cause, outermost context first.
func (f *Failure) Error() string {
	if f.Err == nil {
		return string(f.Code)
	}
	return f.Err.Error()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Permanent returns a Failure that no retry can cure.
func Permanent(code Code, remedy string, format string, args ...any) *Failure {
	return &Failure{Code: code, Permanent: true, Remedy: remedy, Err: fmt.Errorf(format, args...)}
}

// Suspended returns a Failure that waits for a person: it is about the knowledge base or the settings, not about the document.
func Suspended(code Code, remedy string, format string, args ...any) *Failure {
	return &Failure{Code: code, Suspend: true, Remedy: remedy, Err: fmt.Errorf(format, args...)}
}

// Transient returns a Failure that a later attempt may cure.
func Transient(code Code, format string, args ...any) *Failure {
	return &Failure{Code: code, Err: fmt.Errorf(format, args...)}
}

// ReaderCrashed returns the failure of a file on which a reader (such as "pdf/1") panicked. It is transient: a later version may read it.
func ReaderCrashed(reader, cause string) *Failure {
	return Transient(CodeExtractCrashed, "%s: %s", crashed(reader), cause)
}

func crashed(reader string) string { return "the reader " + reader + " crashed" }

var readerCrashed = regexp.MustCompile(`the reader [a-z0-9]+/[0-9]+ crashed`)

// CrashedBefore makes err permanent when it is a reader's crash, and lastError, the cause of the attempt before on the same bytes, is one of the
// same version of the reader. It returns any other error as it is.
func CrashedBefore(err error, lastError string) error {
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Code != CodeExtractCrashed || f.Permanent {
		return err
	}
	if said := readerCrashed.FindString(f.Error()); said == "" || !strings.Contains(lastError, said) {
		return err
	}
	return Permanent(CodeExtractCrashed, "Save the document anew or in another format and upload that; please report the file.", "again, %w", f.Err)
}

// AsFailure finds the Failure in err's chain.
// An error without one is CodeInternal and transient; err nil gives nil.
func AsFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Code: CodeInternal, Err: err}
}

// ErrUploadExpired says that the received copy is gone before it could be accepted. The sweeper removes a file without a row after
// a day, and a request that stood still for so long may have lost its copy.
var ErrUploadExpired = errors.New("the received file is gone")

// ErrProcess marks what an extractor could not do for want of the process's or the machine's resources.
var ErrProcess = taskrun.ErrProcess

// ErrElsewhere marks what an extractor cannot do because its program lacks the part that others have.
var ErrElsewhere = taskrun.ErrElsewhere

// ErrNoResources says that this process lacks what it needs for an upload: descriptors, memory, or the right to its own folder.
var ErrNoResources = errors.New("the process lacks resources")

// ErrFolder says that this process does not see the upload folder that belongs to its database (design D20):
// a file that is missing there is not missing.
var ErrFolder = errors.New("the upload folder is not the one of this database")

// Splits reports whether a batch of a group commit that failed so is worth trying one by one.
func Splits(err error) bool { return tasks.Splits(err) }
