package rival

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

func TestMain(m *testing.M) { labserver.Main(m) }

// Every system of this program does its phases on real servers, with a few tasks.
func TestSystemsOnServers(t *testing.T) {
	t.Parallel()
	for name := range systems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Systems empty a whole Redis, so each has one of its own.
			cfg := Config{Tasks: 300, Workers: 8, Rate: 50, Seconds: 1, Redis: labserver.Private(t, labserver.KindRedis, labserver.Options{}).Addr}
			if name == "river" || name == "millweir-postgres" {
				cfg.Postgres = labserver.PostgresDatabase(t)
			} else {
				cfg.MySQL = labserver.MySQLDatabase(t)
			}
			s := systems[name](cfg)
			defer s.Close()
			for _, p := range []Phase{PhasePrepare, PhaseSubmit, PhaseDrain, PhasePrepare, PhaseLatency} {
				r, err := run(t.Context(), s, cfg, p)
				require.NoError(t, err, p)
				if name != "watermill-sql" && name != "relay-watermill" { // they lose messages of publishers that commit out of order
					require.Empty(t, r.Note, p)
				}
			}
		})
	}
}

func TestCyclesOnServers(t *testing.T) {
	t.Parallel()
	for name, shape := range cycles {
		cfg := Config{Tasks: 1200, MySQL: labserver.MySQLDatabase(t)}
		c := &rawCycle{cfg: cfg, shape: shape()}
		defer c.Close()
		for _, p := range []Phase{PhasePrepare, PhaseCycle, PhasePrepare, PhaseSubmit, PhaseDrain} {
			_, err := cycle(t.Context(), c, cfg, p)
			require.NoError(t, err, strings.Join([]string{name, string(p)}, " "))
		}
	}
}
