package catalog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Kept is the version that a rollback of a document goes back to when its request names none: id and number; empty and 0: there is none.
func (a *Catalog) Kept(ctx context.Context, tx taskstate.Tx, document string) (id string, no int64, err error) {
	err = tx.QueryRowContext(ctx, a.q.Get("VersionKept"), document).Scan(&id, &no)
	if errors.Is(err, sql.ErrNoRows) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("look for the version before that of document %s: %w", document, err)
	}
	return strings.TrimSpace(id), no, nil
}

// RollbackUpload is the content of an earlier version of a user's document as an upload; version 0: that of Kept. visible is the number of
// the visible version that this was compared with. It locks nothing.
// Errors: ErrDocumentNotFound, ErrVersionNotFound, ErrVersionVisible, ErrVersionGone.
func (a *Catalog) RollbackUpload(ctx context.Context, user, document string, version int64) (u ingest.Upload, visible int64, err error) {
	u, err = sqldb.Read(ctx, a.d.Store, func(ctx context.Context, tx taskstate.Tx) (ingest.Upload, error) {
		err := tx.QueryRowContext(ctx, a.q.Get("DocumentVisibleNo"), document, user).Scan(&visible)
		if errors.Is(err, sql.ErrNoRows) {
			return ingest.Upload{}, ingest.ErrDocumentNotFound
		}
		no := version
		if err == nil && no == 0 {
			_, no, err = a.Kept(ctx, tx, document)
		}
		switch {
		case err != nil:
			return ingest.Upload{}, err
		case no == 0:
			return ingest.Upload{}, fmt.Errorf("%w: the document has no earlier version whose file is kept", ingest.ErrVersionGone)
		}
		u, err := a.contentOf(ctx, tx, document, no)
		if u.Kept != nil {
			u.Kept.Version = version
		}
		return u, err
	})
	return u, visible, err
}

// contentOf reads what an earlier version was made of.
func (a *Catalog) contentOf(ctx context.Context, tx taskstate.Tx, document string, no int64) (ingest.Upload, error) {
	state, u, err := a.Content(ctx, tx, document, no)
	switch {
	case errors.Is(err, ingest.ErrVersionNotFound), err == nil && state != versionVisible && state != VersionSuperseded:
		return ingest.Upload{}, fmt.Errorf("%w: no version %d of the document was ever visible", ingest.ErrVersionNotFound, no)
	case err != nil:
		return ingest.Upload{}, err
	case state == versionVisible:
		return ingest.Upload{}, fmt.Errorf("version %d: %w", no, ingest.ErrVersionVisible)
	case u.File.ID == "":
		return ingest.Upload{}, fmt.Errorf("version %d: %w", no, ingest.ErrVersionGone)
	}
	return u, nil
}

// Content reads what a version was made of, as far as it is kept; without a file's id the file is not. ErrVersionNotFound.
func (a *Catalog) Content(ctx context.Context, tx taskstate.Tx, document string, no int64) (state VersionState, u ingest.Upload, err error) {
	var said string
	u = ingest.Upload{DocumentID: document, Force: true, Kept: &ingest.Kept{}}
	f := &u.File
	err = tx.QueryRowContext(ctx, a.q.Get("VersionContent"), document, no).Scan(&state, &u.Title, &u.Metadata, &f.ID, &f.SHA256, &f.Bytes, &f.Name, &f.MediaType, &said)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", u, fmt.Errorf("%w: the document has no version %d", ingest.ErrVersionNotFound, no)
	case err != nil:
		return "", u, fmt.Errorf("read version %d of document %s: %w", no, document, err)
	}
	f.ID, f.SHA256 = strings.TrimSpace(f.ID), strings.TrimSpace(f.SHA256)
	var p ingest.Payload // the same bytes may have had another name when they were stored
	if json.Unmarshal([]byte(said), &p) == nil && p.FileName != "" {
		f.Name = p.FileName
	}
	return state, u, nil
}
