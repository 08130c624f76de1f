package documents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	defaultTopK      = 10
	maxTopK          = 50
	byDocument       = "document" // the one groupBy that there is
	defaultGroupHits = 3
	maxGroupHits     = 10
	// maxFilterIDs and maxFilterTypes bound the lists of a filter.
	maxFilterIDs   = 100
	maxFilterTypes = 20
)

// search finds segments.
func (g *Handler) search(c *gin.Context) error {
	var body wire.SearchRequest
	if err := web.ReadJSON(c, &body, false); err != nil {
		return err
	}
	r, err := wanted(body)
	if err != nil {
		return err
	}
	if err := web.WithinBase(c, g.Svc, r.Base); err != nil {
		return err
	}
	name := searchName(r)
	if r.After, err = searchPlace(body.Cursor, name); err != nil {
		return err
	}
	found, err := g.Svc.Search(c.Request.Context(), web.Caller(c), r)
	if errors.Is(err, context.DeadlineExceeded) && c.Request.Context().Err() == nil {
		var failure *ingest.Failure
		if !errors.As(err, &failure) {
			return &web.Error{Code: web.CodeTimeout, Message: "the search took too long; look for fewer words, or in fewer documents", Cause: err}
		}
	}
	next := ""
	if at := found.Next; at != nil {
		next = web.Cursor{List: name, At: int64(at.Rank), ID: at.Document + ":" + strconv.Itoa(at.Segment)}.Encode()
	}
	return web.Show(c, func(f ingest.SearchResult) wire.SearchAnswer { return views.Found(f, next) })(found, err)
}

// wanted is what a body asks for, but for its cursor.
func wanted(body wire.SearchRequest) (ingest.SearchRequest, error) {
	r := ingest.SearchRequest{Query: strings.TrimSpace(body.Query), TopK: defaultTopK}
	if r.Query == "" {
		return r, web.Errorf(web.CodeInvalidField, "query is empty").About("query")
	}
	if err := ingest.CheckText("query", r.Query, web.MaxQueryChars); err != nil {
		return r, err
	}
	if body.TopK != nil {
		r.TopK = *body.TopK
	}
	if err := web.Within("topK", r.TopK, 1, maxTopK); err != nil {
		return r, err
	}
	var err error
	if r.Mode, err = searchMode("mode", body.Mode); err != nil {
		return r, err
	}
	if r.Base, err = ingest.CleanBase("knowledgeBase", body.KnowledgeBase); err != nil {
		return r, err
	}
	if r.PerDocument, err = groups(body); err != nil {
		return r, err
	}
	r.Filter, err = searchFilter(body)
	return r, err
}

// groups is how many hits each group has; 0: no groups.
func groups(body wire.SearchRequest) (int, error) {
	switch {
	case body.GroupBy == byDocument && body.HitsPerGroup == nil:
		return defaultGroupHits, nil
	case body.GroupBy == byDocument:
		return *body.HitsPerGroup, web.Within("hitsPerGroup", *body.HitsPerGroup, 1, maxGroupHits)
	case body.GroupBy != "":
		return 0, web.Errorf(web.CodeInvalidField, "groupBy is %s, allowed is %s", web.Shown(body.GroupBy), byDocument).About("groupBy")
	case body.HitsPerGroup != nil:
		return 0, web.Errorf(web.CodeInvalidField, "hitsPerGroup is for groups; send groupBy too").About("hitsPerGroup")
	}
	return 0, nil
}

var mediaTypeForm = regexp.MustCompile(`^[!-~]+/[!-~]+$`)

// searchFilter reads the fields that select documents.
func searchFilter(body wire.SearchRequest) (f ingest.SearchFilter, err error) {
	if f.Documents, err = listOf("documentIds", body.DocumentIDs, maxFilterIDs, "a UUID", web.IsUUID); err != nil {
		return f, err
	}
	if f.MediaTypes, err = listOf("mediaTypes", body.MediaTypes, maxFilterTypes, "a media type such as text/plain", mediaTypeForm.MatchString); err != nil {
		return f, err
	}
	if f.Metadata, err = ingest.ParseMetadataRules("metadata", body.Metadata); err != nil {
		return f, err
	}
	for _, limit := range []struct {
		field, text string
		to          *time.Time
	}{
		{"createdAfter", body.CreatedAfter, &f.Times.CreatedAfter}, {"createdBefore", body.CreatedBefore, &f.Times.CreatedBefore},
		{"updatedAfter", body.UpdatedAfter, &f.Times.UpdatedAfter}, {"updatedBefore", body.UpdatedBefore, &f.Times.UpdatedBefore},
	} {
		if limit.text == "" {
			continue
		}
		at, ok := web.ParseTime(limit.text)
		if !ok {
			return f, web.Errorf(web.CodeInvalidField, "%s is %s, allowed is a time such as 2026-01-31T12:00:00Z", limit.field, web.Shown(limit.text)).About(limit.field)
		}
		*limit.to = at
	}
	return f, nil
}

// listOf is a list of a filter in lower case, in order, each once.
func listOf(field string, list []string, most int, form string, fits func(string) bool) ([]string, error) {
	if len(list) > most {
		return nil, web.Errorf(web.CodeInvalidField, "%s has %d values, allowed are %d; search for fewer at a time", field, len(list), most).About(field)
	}
	out := make([]string, len(list))
	for i, v := range list {
		if out[i] = strings.ToLower(v); !fits(out[i]) {
			return nil, web.Errorf(web.CodeInvalidField, "%s has %s, allowed is %s", field, web.Shown(v), form).About(field)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// searchName names a search in its cursors: they are good for the same question only.
func searchName(r ingest.SearchRequest) string {
	r.TopK, r.After = 0, nil
	text, _ := json.Marshal(r) // which cannot fail
	sum := sha256.Sum256(text)
	return "search:" + hex.EncodeToString(sum[:8])
}

// searchPlace reads a cursor of the search of that name; nil: the first page.
func searchPlace(text, name string) (*ingest.SearchPlace, error) {
	if text == "" {
		return nil, nil
	}
	at, err := web.DecodeCursor(text, name)
	document, index, _ := strings.Cut(at.ID, ":")
	segment, bad := strconv.Atoi(index)
	if err != nil || bad != nil || at.At < 1 {
		e := web.BadCursor()
		e.Message = "the cursor is not one of this search; send it with the query, knowledgeBase, mode, filters and groups that it was returned for, or leave it out"
		return nil, e
	}
	if at.At >= ingest.MaxHits {
		return nil, web.Errorf(web.CodeInvalidField,
			"cursor stands behind %d hits, and a search shows no more; search for more words, or in fewer documents", ingest.MaxHits).About("cursor")
	}
	return &ingest.SearchPlace{Rank: int(at.At), Document: document, Segment: segment}, nil
}

// searchMode is a mode that a field names; it may be missing.
func searchMode(field, text string) (ingest.SearchMode, error) {
	mode := ingest.SearchMode(text)
	if mode != "" && !slices.Contains(ingest.SearchModes(), mode) {
		return "", web.Errorf(web.CodeInvalidField, "%s is %s, allowed are %s", field, web.Shown(text), web.Join(ingest.SearchModes())).About(field)
	}
	return mode, nil
}
