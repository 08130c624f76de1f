package taskstore_test

import (
	"testing"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstore"
)

func TestMain(m *testing.M) { labserver.Main(m) }

func TestMaria(t *testing.T) {
	t.Parallel()
	smoke(t, taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t)})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	smoke(t, taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t)})
}
