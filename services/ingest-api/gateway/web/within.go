package web

import (
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// BaseRule says how the knowledge base is found that a request is about. Keys that are limited to bases are refused where it is
// another one, and where there is none.
type BaseRule int

// The rules.
const (
	BaseNone       BaseRule = iota // the address is about no knowledge base, or about all
	BaseOfPath                     // :base
	BaseOfDocument                 // that of :documentId
	BaseOfDeletion                 // that of the receipt of :documentId
	BaseOfTask                     // that of :taskId
	BaseOfQuery                    // knowledgeBase in the query
	BaseOfBody                     // named in the body: the handler asks WithinBase as soon as it has read that
)

// CheckBase refuses a request of a key that is limited to other knowledge bases than the one that it is about.
func CheckBase(c *gin.Context, svc ingest.Service, rule BaseRule) error {
	if RequestOf(c).Principal.Bases == nil {
		return nil
	}
	ctx, who := c.Request.Context(), Caller(c)
	switch rule {
	case BaseNone:
		return outside(c, "and this address is not about one of them")
	case BaseOfPath:
		name, err := BaseName(c)
		if err != nil {
			return err
		}
		return WithinBase(c, svc, name)
	case BaseOfDocument:
		id, err := DocumentID(c)
		if err != nil {
			return err
		}
		d, err := svc.Document(ctx, who, id)
		if err != nil {
			return err
		}
		return within(c, d.BaseID)
	case BaseOfDeletion:
		id, err := DocumentID(c)
		if err != nil {
			return err
		}
		d, err := svc.Deletion(ctx, who, id)
		if err != nil {
			return err
		}
		return within(c, d.BaseID)
	case BaseOfTask:
		id, err := ID("taskId", taskstate.ErrNotFound)(c)
		if err != nil {
			return err
		}
		t, err := svc.Task(ctx, who, id)
		if err != nil {
			return err
		}
		return within(c, t.KnowledgeBase)
	case BaseOfQuery:
		base, err := BaseFilter(c, svc)
		if err == nil && base == "" {
			return outside(c, "and the request names none; send knowledgeBase with one of them")
		}
		if err != nil {
			return err
		}
		return within(c, base)
	case BaseOfBody: // the handler knows it when it has read the body
		return nil
	}
	return outside(c, "and nobody knows which one this address is about")
}

// WithinBase refuses a request of a key that is limited to other knowledge bases than this one; an empty name is that of the default one.
func WithinBase(c *gin.Context, svc ingest.Service, idOrName string) error {
	if RequestOf(c).Principal.Bases == nil {
		return nil
	}
	b, err := svc.Base(c.Request.Context(), Caller(c), idOrName)
	if err != nil {
		return err
	}
	return within(c, b.ID)
}

// WithinTask is WithinBase for the base of a task that a request was given.
func WithinTask(c *gin.Context, t taskstate.Task) error { return within(c, t.KnowledgeBase) }

func within(c *gin.Context, base string) error {
	bases := RequestOf(c).Principal.Bases
	if bases == nil || slices.Contains(bases, strings.TrimSpace(base)) {
		return nil
	}
	return outside(c, "and this is in none of them")
}

// outside is the refusal of a key that is limited to knowledge bases.
func outside(c *gin.Context, why string) error {
	return Errorf(CodeScope, "this key is limited to the knowledge bases %s, %s", strings.Join(RequestOf(c).Principal.Bases, ", "), why)
}
