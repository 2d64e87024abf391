package interleave

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// local are statements that are no steps: they neither write nor lock, and what they read
// nobody writes, or the code under test only hints with.
var local = map[string]bool{
	"PlanSettings": true, "ClaimBegin": true, "ClaimFloors": true, "SubscriptionGet": true, "RevivalRecord": true, "-- ping": true,
	"LogSettings": true, "SubscriptionNotify": true,
}

// reads are steps that write and lock nothing, so that the end of a transaction that has
// had no others is none.
var reads = map[string]bool{"DeliveryAhead": true, "DeliveryAsset": true, "DeliveryInFlight": true, "LogState": true, "ReplayPosition": true}

// Mutation is a fault to put into a statement on its way to the server.
type Mutation struct {
	Statement string // its name
	Old, New  string
	Applied   *atomic.Int64 // how often; nil: not counted
}

func (m Mutation) apply(sql string) string {
	if m.Old == "" || nameOf(sql) != m.Statement || !strings.Contains(sql, m.Old) {
		return sql
	}
	if m.Applied != nil {
		m.Applied.Add(1)
	}
	return strings.ReplaceAll(sql, m.Old, m.New)
}

// Actor is one session. Its Pool has one connection, which stops before each step for as
// long as the actor runs.
type Actor struct {
	Pool      *pgxpool.Pool
	number    int
	mutations []Mutation
	pid       atomic.Int64 // of its backend
	gates     int64        // passed so far

	mu      sync.Mutex
	running bool
	at      string // the statement before which it has stopped
	done    bool
	err     error
	turn    chan struct{}
	moved   chan struct{} // it has stopped or is done; has room for one
}

// NewActor returns an actor with a session on the database of url, which puts mutations
// into what it sends.
func NewActor(ctx context.Context, url string, number int, mutations ...Mutation) (*Actor, error) {
	a := &Actor{number: number, mutations: mutations}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1
	config.ConnConfig.RuntimeParams["interleave.actor"] = fmt.Sprint(number)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newConn(c, a), nil
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	a.Pool, err = pgxpool.NewWithConfig(ctx, config)
	return a, err
}

// mutate puts the actor's mutations into a statement.
func (a *Actor) mutate(sql string) string {
	for _, m := range a.mutations {
		sql = m.apply(sql)
	}
	return sql
}

func (a *Actor) isStep(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running && !local[name]
}

// start runs f, and tells moved whenever the actor has stopped.
func (a *Actor) start(moved chan struct{}, f func() error) {
	a.mu.Lock()
	a.moved = moved
	a.running, a.at, a.done, a.err, a.turn = true, "", false, nil, make(chan struct{})
	a.mu.Unlock()
	go func() {
		err := f()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.running, a.done, a.err = false, true, err
		a.tell()
	}()
}

// stop waits for the actor's turn.
func (a *Actor) stop(at string) {
	a.mu.Lock()
	if !a.running {
		a.mu.Unlock()
		return
	}
	a.at = at
	turn := a.turn
	a.tell()
	a.mu.Unlock()
	<-turn
}

// step lets the actor go on from where it has stopped.
func (a *Actor) step() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = ""
	a.turn <- struct{}{}
}

// let has the actor end without stopping again.
func (a *Actor) let() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running, a.at = false, ""
	close(a.turn)
}

func (a *Actor) tell() {
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

// state is where an actor is.
func (a *Actor) state() (at string, done bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at, a.done, a.err
}
