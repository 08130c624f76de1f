package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// listPage is the gateway's largest page.
const listPage = 100

// given are the filters that were set.
func given(filters map[string]*string) url.Values {
	q := url.Values{}
	for name, v := range filters {
		if *v != "" {
			q.Set(name, *v)
		}
	}
	return q
}

// listAll pages through a list until it has limit items or the list ends.
func listAll[T any](ctx context.Context, f *common, path string, q url.Values, limit int) ([]T, error) {
	if limit < 1 {
		return nil, &usageError{fmt.Sprintf("--limit %d: at least 1", limit)}
	}
	var all []T
	for len(all) < limit {
		q.Set("limit", strconv.Itoa(min(limit-len(all), listPage)))
		var page struct {
			Items      []T     `json:"items"`
			NextCursor *string `json:"nextCursor"`
		}
		if err := f.client().do(ctx, http.MethodGet, path+"?"+q.Encode(), "", nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			break
		}
		q.Set("cursor", *page.NextCursor)
	}
	return all, nil
}

// postEach posts to the path of each id and returns what came back; the first refusal ends it.
func postEach[T any](ctx context.Context, f *common, ids []string, verb string, path func(id string) string) (done []T, err error) {
	for _, id := range ids {
		var one T
		if err := f.client().do(ctx, http.MethodPost, path(id), "", nil, &one); err != nil {
			return done, fmt.Errorf("%s %s: %w", verb, id, err)
		}
		done = append(done, one)
	}
	return done, nil
}

// postJSON posts a JSON body.
func postJSON(ctx context.Context, f *common, path string, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	return f.client().do(ctx, http.MethodPost, path, "application/json", bytes.NewReader(text), out)
}
