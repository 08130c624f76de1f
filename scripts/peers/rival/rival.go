// Package rival holds the task systems that are measured side by side, Millweir among them, and the protocol by which
// the program that measures asks for one phase after the other.
//
// Every system does the same job as its own documentation says it is done fastest: a bulk of tasks that do nothing is
// submitted, then drained by workers until the system's own record says that all are done; then tasks come at a steady
// rate. The "tasks" of the relays are events of an outbox, done when a stand-in broker has answered. Systems in other languages speak the same protocol from files of their own (../bullmq.js, ../taskiq_peer.py).
package rival

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// payloadBytes is the size of a task's payload, as text.
const payloadBytes = 200

// Config is what a system is told, by environment variables; all systems read the same ones.
type Config struct {
	Tasks    int    // PEERS_TASKS: of one bulk
	Workers  int    // PEERS_WORKERS: handlers at a time, and clients that submit at a time
	Rate     int    // PEERS_RATE: tasks per second of the latency phase
	Seconds  int    // PEERS_SECONDS: its length, without the first second, which is not counted
	Redis    string // PEERS_REDIS: host:port
	MySQL    string // PEERS_MYSQL: a data source name with a database
	Postgres string // PEERS_POSTGRES: a URL with a database
	Profile  string // PEERS_PROFILE: how the names of the CPU profiles begin that a Go system is to write; empty: none
}

// Environ renders the variables.
func (c Config) Environ() []string {
	return []string{
		"PEERS_TASKS=" + strconv.Itoa(c.Tasks), "PEERS_WORKERS=" + strconv.Itoa(c.Workers),
		"PEERS_RATE=" + strconv.Itoa(c.Rate), "PEERS_SECONDS=" + strconv.Itoa(c.Seconds),
		"PEERS_REDIS=" + c.Redis, "PEERS_MYSQL=" + c.MySQL, "PEERS_POSTGRES=" + c.Postgres,
		"PEERS_PROFILE=" + c.Profile,
	}
}

// ConfigFromEnv reads the variables back.
func ConfigFromEnv() (Config, error) {
	c := Config{
		Redis: os.Getenv("PEERS_REDIS"), MySQL: os.Getenv("PEERS_MYSQL"), Postgres: os.Getenv("PEERS_POSTGRES"),
		Profile: os.Getenv("PEERS_PROFILE"),
	}
	var errs []error
	for name, to := range map[string]*int{
		"PEERS_TASKS": &c.Tasks, "PEERS_WORKERS": &c.Workers, "PEERS_RATE": &c.Rate, "PEERS_SECONDS": &c.Seconds,
	} {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("%s=%q: a positive number is wanted", name, os.Getenv(name)))
		}
		*to = n
	}
	return c, errors.Join(errs...)
}

// System is one task system. Prepare comes before everything else and again before the latency phase.
type System interface {
	// Prepare empties the system.
	Prepare(ctx context.Context) error
	// Submit makes n tasks in its fastest documented way; they are durable when it returns.
	Submit(ctx context.Context, n int) error
	// Send makes one task; it calls committed when the task is durable, and returns when its maker would go on.
	Send(ctx context.Context, payload []byte, committed func()) error
	// Work starts the workers; handle is the whole work of a task. stop ends them and waits.
	Work(ctx context.Context, handle func(payload []byte)) (stop func() error, err error)
	// Drained reports whether the system's own record says that all n tasks are done and none is left.
	Drained(ctx context.Context, n int) (bool, error)
	// Close lets everything go.
	Close()
}

// Checker is a System that looks at what a drain has left, off the clock.
type Checker interface {
	Check(ctx context.Context, n int) error
}

// systems are those that this program is itself.
var systems = map[string]func(Config) System{
	"millweir":              func(c Config) System { return &millweir{cfg: c, database: onMySQL} },
	"millweir-postgres":     func(c Config) System { return &millweir{cfg: c, database: onPostgres} },
	"millweir-sqlite":       func(c Config) System { return &millweir{cfg: c, database: onSQLite} },
	"naive":                 func(c Config) System { return &naive{cfg: c} },
	"asynq":                 func(c Config) System { return &asynqSystem{cfg: c} },
	"river":                 func(c Config) System { return &riverSystem{cfg: c} },
	"watermill-redisstream": func(c Config) System { return &watermillRedis{cfg: c} },
	"streammq":              func(c Config) System { return &streamMQ{cfg: c} },
	"watermill-sql": func(c Config) System {
		return &watermillSQL{cfg: c, database: "peers_watermill", batch: wmSQLBatch}
	},
	"relay":           func(c Config) System { return &outboxRelay{cfg: c} },
	"relay-500":       func(c Config) System { return &outboxRelay{cfg: c, batch: largeBatch} },
	"relay-watermill": func(c Config) System { return newForwarder(c) },
}

// cycles are no queues, only the statements that one would need, on tables of two shapes.
var cycles = map[string]func() shape{"raw-cycle": ourShape, "raw-cycle-enum": sketchShape}

// body is a task's payload: a number by which the latency phase knows it (0: unmeasured) and padding.
type body struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

// Payload is a payload of 200 bytes.
func Payload(n int) []byte {
	const frame = len(`{"n":,"pad":""}`)
	digits := strconv.Itoa(n)
	return []byte(`{"n":` + digits + `,"pad":"` + strings.Repeat("x", payloadBytes-frame-len(digits)) + `"}`)
}

// numberOf reads the number back.
func numberOf(payload []byte) (int, error) {
	var b body
	if err := json.Unmarshal(payload, &b); err != nil {
		return 0, fmt.Errorf("payload of a task: %w", err)
	}
	return b.N, nil
}
