// Package app puts the rooms of the ingestion together.
package app

import (
	"sync/atomic"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/embedcache"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/operate"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/ingest/submit"
	"github.com/millweir/millweir/pkg/ingest/sweep"
	"github.com/millweir/millweir/pkg/ingest/upload"
)

// App is the writing half of the application. It is safe for concurrent use.
type App struct {
	*upload.Uploads
	*submit.Keys
	*operate.Operator
	*sweep.Deleter
	*sweep.Sweeper
	*files.Mount
	Cache   *embedcache.Cache
	Catalog *catalog.Catalog
	Deliver *submit.Deliverer

	worker func() (*pipeline.Worker, error)
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
	cat, err := catalog.New(d)
	if err != nil {
		return nil, err
	}
	before := &atomic.Int64{}
	deliver := submit.NewDeliverer(d, cfg)
	a := &App{
		Keys:     submit.NewKeys(d, cat.Queries()),
		Operator: operate.New(d, cat, deliver),
		Deleter:  sweep.NewDeleter(d, cat, deliver),
		Mount:    files.NewMount(d, cat.Queries(), folder),
		Cache:    embedcache.New(d, cat.Queries(), before),
		Catalog:  cat,
		Deliver:  deliver,
	}
	a.Uploads = upload.New(d, cfg, cat, a.Mount, deliver)
	a.Sweeper = sweep.New(d, cfg, cat, a.Mount, a.Keys, deliver, a.Cache, a.Deleter)
	a.worker = func() (*pipeline.Worker, error) { return pipeline.New(d, cfg, cat, a.Mount, a.Cache, before) }
	return a, nil
}

// Worker makes what runs documents. pipeline.ErrNoWorker when a part is missing.
func (a *App) Worker() (*pipeline.Worker, error) { return a.worker() }
