package taskstore_test

import (
	"path/filepath"
	"testing"

	"github.com/millweir/millweir/pkg/taskstore"
)

func TestFirst(t *testing.T) {
	t.Parallel()
	smoke(t, taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "t.db")})
}
