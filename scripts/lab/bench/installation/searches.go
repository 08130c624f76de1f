package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	searchedDocuments = 1000
	searchClients     = 8
	searchRate        = 200 // a second
	besideRounds      = 5
	mergedParts       = 24 // of the text index, when the reclaimer has merged what it merges
)

// UploadBesideSearches puts the load of Upload on the gateway with searches beside it and without, by turns.
func UploadBesideSearches(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "upload-search"}, "ingest-api", "stream-worker", "reclaimer")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	apiclient.Load{Target: client, Clients: searchClients, Count: searchedDocuments, Bytes: uploadBytes}.Run(ctx)
	if err := figure.Counted(ctx, w, figure.SettleLimit, func(c map[taskstate.Status]int) bool { return c[taskstate.StatusSucceeded] == searchedDocuments }); err != nil {
		return nil, err
	}
	if err := await.Until(ctx, figure.SettleLimit, time.Second, func(ctx context.Context) error {
		var parts int
		err := w.DB.Reader().QueryRowContext(ctx, "SELECT COUNT(*) FROM knowledge_text_part").Scan(&parts)
		if err == nil && parts > mergedParts {
			err = fmt.Errorf("the text index has %d parts", parts)
		}
		return err
	}); err != nil {
		return nil, err
	}
	for _, p := range procs[1:] { // nobody works on what is uploaded from now on
		if _, err := p.Stop(ctx, figure.StartLimit); err != nil {
			return nil, err
		}
	}
	gateway := procs[0]
	var rounds []besideRound
	for n := range besideRounds + 1 { // the first warms up
		var r besideRound
		for turn := range 2 {
			number := 10_000 + 2*n + turn
			if (n+turn)%2 == 0 { // who is first takes turns too
				stop := searchBeside(ctx, gateway.HTTP)
				r.with, r.withCores, err = half(ctx, w, gateway, number)
				var searchErr error
				r.searches, searchErr = stop()
				err = errors.Join(err, searchErr)
			} else {
				r.without, r.withoutCores, err = half(ctx, w, gateway, number)
			}
			if err != nil {
				return nil, err
			}
		}
		rounds = append(rounds, r)
	}
	alone, err := searchAlone(ctx, w, gateway)
	return append(besideFigures(rounds[1:]), alone...), err
}

// searchAlone is what a search costs when nobody uploads.
func searchAlone(ctx context.Context, w *world.World, gateway *proc.Proc) ([]figure.Figure, error) {
	stop := searchBeside(ctx, gateway.HTTP)
	gatewayBefore, sqlBefore := proc.CPUSeconds(gateway.PID), proc.CPUSeconds(w.SQL.PID())
	await.Pause(ctx, uploadRound)
	gatewayUsed, sqlUsed := proc.CPUSeconds(gateway.PID)-gatewayBefore, proc.CPUSeconds(w.SQL.PID())-sqlBefore
	s, err := stop()
	if err != nil {
		return nil, err
	}
	of := func(used float64) float64 { return 1000 * used / float64(s.Answered) }
	return []figure.Figure{{
		Name: "CPU of a search alone", Measured: of(gatewayUsed + sqlUsed), Unit: "ms",
		Note: fmt.Sprintf("gateway %.2f, database %.2f; %.0f /s, p50 %.1f ms, p99 %.1f ms", of(gatewayUsed), of(sqlUsed), s.rate(), s.P50, s.P99),
	}}, nil
}

// besideRound is what one round came to with searches and without, with the cores that gateway and database used.
type besideRound struct {
	with, without, searches uploaded
	withCores, withoutCores float64
}

// half uploads for one half of a round.
func half(ctx context.Context, w *world.World, gateway *proc.Proc, number int) (u uploaded, cores float64, err error) {
	used := func() float64 { return proc.CPUSeconds(gateway.PID) + proc.CPUSeconds(w.SQL.PID()) }
	before := used()
	u, err = loadOnce(ctx, gateway.HTTP+"/api/knowledge/documents/upload-async", number, uploadRound, false)
	return u, (used() - before) / u.Seconds, err
}

// besideFigures compares the rounds pairwise: a busy moment of the machine hits neighbours alike.
func besideFigures(rounds []besideRound) []figure.Figure {
	middle := func(f func(besideRound) float64) float64 {
		var values []float64
		for _, r := range rounds {
			values = append(values, f(r))
		}
		return figure.Median(values)
	}
	var rates []string
	for _, r := range rounds {
		rates = append(rates, fmt.Sprintf("%.0f/%.0f", r.with.rate(), r.without.rate()))
	}
	return []figure.Figure{
		{
			Name: "uploads beside searches / without", Measured: middle(func(r besideRound) float64 { return r.with.rate() / r.without.rate() }),
			Unit: "×", Asked: 0.9, Relation: "≥", Note: fmt.Sprintf("%d clients, by turns: %s /s; %.2f and %.2f cores of gateway and database", uploadClients, strings.Join(rates, " "),
				middle(func(r besideRound) float64 { return r.withCores }), middle(func(r besideRound) float64 { return r.withoutCores })),
		},
		{
			Name: "searches beside uploads", Measured: middle(func(r besideRound) float64 { return r.searches.rate() }), Unit: "/s",
			Note: fmt.Sprintf("%d are wished for, in %d documents; p50 %.1f ms, p99 %.1f ms", searchRate, searchedDocuments,
				middle(func(r besideRound) float64 { return r.searches.P50 }), middle(func(r besideRound) float64 { return r.searches.P99 })),
		},
	}
}

// searchBeside searches from a process of its own until stop is called, which returns what came of it.
func searchBeside(ctx context.Context, url string) (stop func() (uploaded, error)) {
	cmd := selfCommand(ctx, "search", url, strconv.Itoa(searchRate))
	in, err := cmd.StdinPipe()
	var out strings.Builder
	cmd.Stdout = &out
	if err == nil {
		err = cmd.Start()
	}
	return func() (u uploaded, _ error) {
		if err != nil {
			return u, fmt.Errorf("search: %w", err)
		}
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			return u, fmt.Errorf("search: %w", err)
		}
		err := json.Unmarshal([]byte(out.String()), &u)
		if err == nil && (u.Failed > 0 || u.Answered == 0) {
			err = fmt.Errorf("%d searches answered, %d failed: %s", u.Answered, u.Failed, u.Error)
		}
		return u, err
	}
}

// searchLoad is the process that searches: URL RATE. It ends with its input, and prints what came of it as JSON.
func searchLoad(args []string, stdout io.Writer) error {
	if len(args) != 2 {
		return errors.New("want URL RATE")
	}
	rate, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(19, uint64(searchedDocuments))) //nolint:gosec // the same queries each time
	queries := make([]string, searchedDocuments)
	for n := range queries {
		words := strings.Fields(string(apiclient.Text(n, uploadBytes).Body))
		at := r.IntN(len(words) - 3)
		queries[n] = strings.Join(words[at:at+3], " ")
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	client := apiclient.NewClient(args[0])
	l := &uploadClientsOf{since: time.Now()}
	every := time.Second * searchClients / time.Duration(rate)
	var all sync.WaitGroup
	for n := range searchClients {
		all.Go(func() {
			for next, query := l.since, n; await.Pause(ctx, time.Until(next)); next, query = next.Add(every), query+searchClients {
				began := time.Now()
				_, err := client.Search(ctx, "", queries[query%len(queries)], 10)
				if ctx.Err() == nil {
					l.note(began, err)
				}
			}
		})
	}
	all.Wait()
	return json.NewEncoder(stdout).Encode(l.total())
}
