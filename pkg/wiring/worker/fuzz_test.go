package worker

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
)

// variables are the names of all settings of a Config and its parts.
func variables(config reflect.Type) (names []string) {
	for i := range config.NumField() {
		f := config.Field(i)
		if name := f.Tag.Get("envconfig"); name != "" {
			names = append(names, name)
		} else if f.Type.Kind() == reflect.Struct {
			names = append(names, variables(f.Type)...)
		}
	}
	return names
}

// FuzzSettings gives one setting of a worker any value: it is taken, or refused by its name, and a secret is never shown.
func FuzzSettings(f *testing.F) {
	names := variables(reflect.TypeFor[Settings]())
	require.Greater(f, len(names), 50)
	for i := range names {
		for _, seed := range []string{"", "0", "-1", "true", "auto", "10m", "99999999999999999999", "1e9", "redis://h:1", "postgres://u:p@h/d", "☃"} {
			f.Add(uint8(i), seed)
		}
	}
	const secret = "hunter2canary"
	f.Fuzz(func(t *testing.T, which uint8, value string) {
		if strings.ContainsRune(value, 0) {
			return // no environment can hold it
		}
		name := names[int(which)%len(names)]
		t.Setenv("DATABASE_URL", "postgres://millweir:"+secret+"@db/millweir")
		t.Setenv("REDIS_URL", "redis://:"+secret+"@redis:6379")
		t.Setenv("CHROMA_BASE_URL", "http://chroma:8000")
		t.Setenv("EMBEDDING_API_KEY", secret)
		t.Setenv(name, value)
		cfg, err := process.Load[Settings]()
		require.NotContains(t, fmt.Sprintf("%v %+v", cfg, &cfg), secret)
		if err != nil {
			require.ErrorIs(t, err, process.ErrBadSetting)
			require.NotContains(t, err.Error(), secret)
			return
		}
		_, err = cfg.Work.runner("worker", cfg.Shared.Policy(), true)
		require.NoError(t, err, "what is taken can be used")
	})
}
