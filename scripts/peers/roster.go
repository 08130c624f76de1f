package main

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/millweir/millweir/scripts/peers/rival"
	"github.com/millweir/millweir/scripts/peers/stage"
)

// entry is one system as it is measured.
type entry struct {
	name  string
	keeps string // what its servers keep through a power failure
	uses  []stage.Server
	share int // it gets N/share tasks; slow ones would take the whole run
	argv  func(ctx context.Context, dir string) ([]string, error)
	raw   bool // a raw cycle
	named bool // measured only when NAMES tells it: no task system, and half a minute longer where events never arrive
	env   []string
}

const (
	keepsSQL      = "flush=1"
	keepsEverysec = "everysec"
	keepsAlways   = "always"
	keepsPostgres = "fsync, sync_commit=on"
	// slowShare is for those that do less than 10,000 tasks a second.
	slowShare = 4
	// forwarderShare is for the one that does 400 events a second: 3,333 of 20,000.
	forwarderShare = 6
)

// roster is who is measured, in the order of a repetition: those that are compared most closely next to each other.
var roster = []entry{
	{name: "raw-cycle", keeps: keepsSQL, uses: []stage.Server{stage.MariaDB}, share: 1, argv: itself("raw-cycle"), raw: true},
	{name: "millweir", keeps: keepsSQL + " + " + keepsEverysec, uses: []stage.Server{stage.MariaDB, stage.RedisEverysec}, share: 1, argv: itself("millweir")},
	{name: "millweir-postgres", keeps: keepsPostgres + " + " + keepsEverysec, uses: []stage.Server{stage.Postgres, stage.RedisEverysec}, share: 1, argv: itself("millweir-postgres")},
	{name: "river", keeps: keepsPostgres, uses: []stage.Server{stage.Postgres}, share: 1, argv: itself("river")},
	{name: "watermill-redisstream", keeps: keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: 1, argv: itself("watermill-redisstream")},
	{name: "bullmq", keeps: keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: 1, argv: stage.InstallBullMQ},
	{name: "asynq", keeps: keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: 1, argv: itself("asynq")},
	{name: "millweir-always", keeps: keepsSQL + " + " + keepsAlways, uses: []stage.Server{stage.MariaDB, stage.RedisAlways}, share: 1, argv: itself("millweir")},
	{name: "asynq-always", keeps: keepsAlways, uses: []stage.Server{stage.RedisAlways}, share: slowShare, argv: itself("asynq")},
	{name: "watermill-sql", keeps: keepsSQL, uses: []stage.Server{stage.MariaDB}, share: slowShare, argv: itself("watermill-sql")},
	{name: "taskiq", keeps: keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: slowShare, argv: stage.InstallTaskiq},
	{name: "naive16", keeps: keepsSQL + " + " + keepsEverysec, uses: []stage.Server{stage.MariaDB, stage.RedisEverysec}, share: slowShare, argv: itself("naive")},
	{name: "raw-cycle-enum", keeps: keepsSQL, uses: []stage.Server{stage.MariaDB}, share: 1, argv: itself("raw-cycle-enum"), raw: true},
	{name: "millweir-sqlite", keeps: "synchronous=FULL + " + keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: 1, argv: itself("millweir-sqlite"), named: true},
	{name: "relay", keeps: keepsSQL, uses: []stage.Server{stage.MariaDB}, share: 1, argv: itself("relay"), named: true},
	{name: "relay-500", keeps: keepsSQL, uses: []stage.Server{stage.MariaDB}, share: 1, argv: itself("relay-500"), named: true},
	{name: "streammq", keeps: keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: 1, argv: itself("streammq"), named: true},
	{name: "streammq-watermill", keeps: keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: 1, argv: itself("watermill-redisstream"), named: true},
	{name: "streammq-faststream", keeps: keepsEverysec, uses: []stage.Server{stage.RedisEverysec}, share: 1, argv: stage.InstallFastStream, named: true},
	{name: "relay-watermill", keeps: keepsSQL, uses: []stage.Server{stage.MariaDB}, share: forwarderShare, argv: itself("relay-watermill"), named: true},
}

// itself is this program as one of the systems.
func itself(name string) func(context.Context, string) ([]string, error) {
	return func(context.Context, string) ([]string, error) {
		self, err := os.Executable()
		return []string{self, serveVerb, name}, err
	}
}

// matching are the entries whose names begin with one of the prefixes; none given: all but those that must be named.
func matching(prefixes string) (out []entry) {
	for _, e := range roster {
		if slices.ContainsFunc(strings.Split(prefixes, ","), func(p string) bool {
			return strings.HasPrefix(e.name, p) && (p != "" || !e.named)
		}) {
			out = append(out, e)
		}
	}
	return out
}

// servers are all that the entries use.
func servers(entries []entry) (out []stage.Server) {
	for _, e := range entries {
		for _, s := range e.uses {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// phases are those that an entry is measured in.
func (e entry) phases(latency bool) []rival.Phase {
	switch {
	case e.raw:
		return []rival.Phase{rival.PhasePrepare, rival.PhaseCycle, rival.PhasePrepare, rival.PhaseSubmit, rival.PhaseDrain}
	case latency:
		return []rival.Phase{rival.PhasePrepare, rival.PhaseSubmit, rival.PhaseDrain, rival.PhasePrepare, rival.PhaseLatency}
	}
	return []rival.Phase{rival.PhasePrepare, rival.PhaseSubmit, rival.PhaseDrain}
}

// redis is the Redis that an entry uses, if any.
func (e entry) redis() stage.Server {
	for _, s := range e.uses {
		if s == stage.RedisEverysec || s == stage.RedisAlways {
			return s
		}
	}
	return ""
}
