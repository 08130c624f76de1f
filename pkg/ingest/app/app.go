// Package app puts the rooms of the ingestion together.
package app

import (
	"maps"
	"sync/atomic"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/ingest/submit"
	"github.com/millweir/millweir/pkg/ingest/sweep"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/upload"
	"github.com/millweir/millweir/pkg/tasks"
)

// App is the writing half of the application. It is safe for concurrent use.
type App struct {
	*upload.Uploads
	*submit.Keys
	*tasks.Service
	*sweep.Deleter
	*sweep.Sweeper
	*files.Mount
	*catalog.Catalog
	Cache *embedcache.Cache
	Index *textindex.Index

	// Worker makes what runs documents. pipeline.ErrNoWorker when a part is missing.
	Worker func() (*pipeline.Worker, error)
}

// New makes an App over parts, a folder and the settings.
func New(d ingest.Deps, folder *files.Folder, cfg ingest.Config) (*App, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d, err := d.WithDefaults()
	if err != nil {
		return nil, err
	}
	cat := catalog.New(d)
	before := &atomic.Int64{}
	types := map[string]tasks.Type{ingest.TypeDocument: catalog.TaskType{Catalog: cat}}
	maps.Copy(types, d.Tasks)
	door, err := tasks.New(tasks.Deps{
		Store: d.Store, Publisher: d.Publisher, Types: types, Log: d.Log, Clock: d.Clock, Redact: d.Redact, Changed: d.Changed,
	}, cfg.Config)
	if err != nil {
		return nil, err
	}
	a := &App{
		Keys:    submit.NewKeys(d, cat.Queries()),
		Service: door,
		Deleter: sweep.NewDeleter(d, cat, door),
		Mount:   files.NewMount(d, cat.Queries(), folder),
		Cache:   embedcache.New(d, cat.Queries(), before),
		Catalog: cat,
		Index:   textindex.New(d.Store),
	}
	a.Uploads = upload.New(d, cfg, cat, a.Mount, door)
	a.Sweeper = sweep.New(d, cfg, cat, a.Mount, a.Keys, door, a.Cache, a.Deleter, a.Index)
	a.Worker = func() (*pipeline.Worker, error) { return pipeline.New(d, cfg, cat, a.Mount, a.Cache, a.Index, before) }
	return a, nil
}
