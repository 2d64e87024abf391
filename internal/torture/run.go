package torture

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/torture/check"
	"github.com/postlane-go/postlane/internal/torture/endpoint"
	"github.com/postlane-go/postlane/internal/torture/journal"
	"github.com/postlane-go/postlane/internal/torture/producer"
	"github.com/postlane-go/postlane/internal/torture/worker"
)

// Config is what a run is told.
type Config struct {
	Seed     uint64
	Duration time.Duration
	// Dir is where journals, logs and data are; what is there is removed.
	Dir string
	// Program is run for the children, with their role as its argument.
	Program string
	// Workers is how many processes dispatch and relay, and Rate how many
	// transactions begin in a second.
	Workers int
	Rate    float64
	// Kinds are the faults to draw from; nil: all.
	Kinds []string
	// Disks says that small disks can be mounted, where no other process sees them.
	Disks bool
	// Shift says that the program's clocks can be shifted.
	Shift bool
	// Log is told what happens.
	Log io.Writer
}

// The roles of children.
const (
	WorkerRole   = "worker"
	ProducerRole = "producer"
	EndpointRole = "endpoint"
)

const (
	lease   = 4 * time.Second
	timeout = 1500 * time.Millisecond
	// stopPatience is how long a process may take to stop: its grace of 1 s, 5 s to
	// record, and what a statement takes that was under way.
	stopPatience = 20 * time.Second
)

// run is one.
type run struct {
	config        Config
	began         time.Time
	journal       *journal.Writer
	cluster       *cluster
	pool          *pgxpool.Pool     // the operator's
	lines         map[string]*proxy // by the name of who connects through it
	workers       []*child
	producers     []*child
	receivers     []*child
	subscriptions *subscriptions
	// database is held by a fault that is at work on all of it.
	database sync.Mutex

	mu     sync.Mutex
	failed []error
}

// Run makes a run and judges it. An error means that it could not be made as planned.
func Run(ctx context.Context, c Config) (*check.Report, error) {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	c.Dir = dir
	plan, err := draw(c.Seed, c.Duration, c.Kinds)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(c.Dir), os.MkdirAll(c.Dir, 0o755)); err != nil {
		return nil, err
	}
	r := &run{config: c, lines: map[string]*proxy{}}
	if err := r.do(ctx, plan); err != nil {
		return nil, err
	}
	report, err := check.Dir(c.Dir)
	if err != nil {
		return nil, err
	}
	return report, errors.Join(r.failed...)
}

func (r *run) do(ctx context.Context, plan []planned) (err error) {
	if r.journal, err = journal.Create(filepath.Join(r.config.Dir, "harness.jsonl"), false); err != nil {
		return err
	}
	defer r.journal.Close()
	if err := r.journal.Write(journal.Line{Run: &journal.Run{Seed: r.config.Seed, Lease: lease, Timeout: timeout}}); err != nil {
		return err
	}
	printPlan(r.config.Log, r.config.Seed, plan)
	defer r.close()
	if err := r.start(ctx); err != nil {
		return err
	}
	r.execute(ctx, plan)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.finish(ctx)
}

// start brings everything up.
func (r *run) start(ctx context.Context) (err error) {
	r.began = time.Now()
	if r.cluster, err = startCluster(ctx, r.config.Dir, r.config.Disks); err != nil {
		return err
	}
	line, err := r.line("operator")
	if err != nil {
		return err
	}
	if r.pool, err = pgxpool.New(ctx, r.cluster.url(line)); err != nil {
		return err
	}
	if _, err := migrate.Up(ctx, r.pool.Config().ConnConfig, db.Schema(), migrate.Config{}); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, producer.Schema); err != nil {
		return err
	}
	key := make([]byte, 32)
	rand.Read(key)
	secretKey := base64.StdEncoding.EncodeToString(key)
	ports := map[string]string{}
	for n := range 2 {
		if err := r.startReceiver(ctx, fmt.Sprintf("receiver%d", n+1), ports); err != nil {
			return err
		}
	}
	if r.subscriptions, err = newOperator(ctx, r.pool, secretKey, r.journal, r.receivers, ports); err != nil {
		return err
	}
	for n := range r.config.Workers {
		if err := r.startWorker(fmt.Sprintf("worker%d", n+1), secretKey); err != nil {
			return err
		}
	}
	for n := range 2 {
		if err := r.startProducer(fmt.Sprintf("producer%d", n+1), uint64(n)); err != nil {
			return err
		}
	}
	r.say("%d workers, 2 producers, 2 receivers, PostgreSQL %s", r.config.Workers, r.cluster.leader().server.Version())
	return nil
}

// line makes a process's proxy to the database.
func (r *run) line(name string) (*proxy, error) {
	p, err := newProxy(r.cluster.addr)
	if err == nil {
		r.lines[name] = p
	}
	return p, err
}

func (r *run) child(role, name string, list *[]*child, config func(n int) any) error {
	c := &child{name: name, role: role, dir: r.config.Dir, program: r.config.Program, config: config}
	if err := c.start(); err != nil {
		return err
	}
	*list = append(*list, c)
	return nil
}

func (r *run) startReceiver(ctx context.Context, name string, ports map[string]string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ports[name] = listener.Addr().String()
	listener.Close()
	return r.child(EndpointRole, name, &r.receivers, func(n int) any {
		return endpoint.Config{Name: fmt.Sprintf("%s-%d", name, n), Dir: r.config.Dir, Listen: ports[name], Timeout: timeout}
	})
}

func (r *run) startWorker(name, secretKey string) error {
	line, err := r.line(name)
	if err != nil {
		return err
	}
	url := r.cluster.url(line)
	return r.child(WorkerRole, name, &r.workers, func(int) any {
		return worker.Config{Name: name, DatabaseURL: url, SecretKey: secretKey, Lease: lease, Timeout: timeout}
	})
}

func (r *run) startProducer(name string, number uint64) error {
	line, err := r.line(name)
	if err != nil {
		return err
	}
	url := r.cluster.url(line)
	return r.child(ProducerRole, name, &r.producers, func(n int) any {
		return producer.Config{
			Name: fmt.Sprintf("%s-%d", name, n), DatabaseURL: url, Dir: r.config.Dir, Tenant: tenant,
			Seed: r.config.Seed + number<<32 + uint64(n)<<40, Writers: 6, Rate: r.config.Rate / 2, Assets: 30,
		}
	})
}

// execute does the planned faults at their times, and returns when all are over.
func (r *run) execute(ctx context.Context, plan []planned) {
	r.began = time.Now()
	var all sync.WaitGroup
	tending, stop := context.WithCancel(ctx)
	all.Go(func() { r.tend(tending) })
	for _, p := range plan {
		rest(ctx, time.Until(r.began.Add(p.at)))
		if ctx.Err() != nil {
			break
		}
		r.say("%-22s %v", p.kind, p.length)
		all.Go(func() { r.perform(ctx, p) })
	}
	rest(ctx, time.Until(r.began.Add(r.config.Duration)))
	stop()
	all.Wait()
}

// finish lets everything settle, stops it, and writes down what the database knows.
func (r *run) finish(ctx context.Context) error {
	for _, c := range r.producers {
		if err := c.stop(30 * time.Second); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	r.say("producers have stopped; waiting for what is pending")
	if err := r.settle(ctx); err != nil {
		return err
	}
	for _, c := range slices.Concat(r.workers, r.receivers) {
		if err := c.stop(stopPatience); err != nil {
			r.fail("with nothing wrong, %s ended with: %w", c.name, err)
		}
	}
	return r.record(ctx)
}

func (r *run) close() {
	for _, c := range slices.Concat(r.producers, r.workers, r.receivers) {
		c.kill()
	}
	if r.pool != nil {
		r.pool.Close()
	}
	for _, p := range r.lines {
		p.close()
	}
	if r.cluster != nil {
		r.cluster.stop()
	}
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.config.Log, "%8.2fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// fail notes that the run was not as planned.
func (r *run) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	r.say("%v", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, err)
}
