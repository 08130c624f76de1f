package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/tables"
)

// letterUploaded sends a message with three attachments.
func letterUploaded(ctx context.Context, t *trial) error {
	d, err := t.upload(ctx, apiclient.Letter(t.doc(smallDoc), "one.txt", "two.txt", "three.txt"))
	if err == nil {
		t.docs = append(t.docs, d)
	}
	return err
}

// letterReplaced sends another version of it, with other attachments.
func letterReplaced(ctx context.Context, t *trial) error {
	_, err := t.client.Replace(ctx, t.docs[0].document, apiclient.Letter(t.doc(smallDoc), "two.txt", "four.txt"))
	return err
}

// attachedOnce waits until the message has each attachment once, and no other, and nothing is under way.
func attachedOnce(want ...string) step {
	return func(ctx context.Context, t *trial) error {
		return await.Until(ctx, settleLimit, 5*lookEvery, func(ctx context.Context) error {
			open, err := t.count(ctx, "SELECT COUNT(*) FROM ingest_task WHERE channel = 'attachments' AND status <> 'SUCCEEDED'")
			if err != nil || open > 0 {
				return errors.Join(err, fmt.Errorf("%d tasks of attachments have not succeeded", open))
			}
			got, err := tables.Query(ctx, t.DB.Reader(), sqldb.Column[string],
				"SELECT file_name FROM knowledge_document WHERE parent_id = ? AND deleted_at IS NULL ORDER BY file_name", t.docs[0].document)
			if err == nil && strings.Join(got, " ") != sorted(want) {
				err = fmt.Errorf("the attachments are %v, want %v", got, want)
			}
			return err
		})
	}
}

// sorted is a list as a statement gives it.
func sorted(list []string) string { return strings.Join(slices.Sorted(slices.Values(list)), " ") }
