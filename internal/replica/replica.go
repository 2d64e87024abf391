// Package replica keeps an eye on a streaming standby of the database, so that what people
// look at can be read there.
//
// A standby is behind its primary. It is read by whoever changed nothing that it does not
// have yet, and by nobody while it is away, far behind, or not what it should be: all that
// is read there can be read at the primary.
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// every is how often the two are asked how far they are.
	every = time.Second
	// timeout is how long they may take to say.
	timeout = 2 * time.Second
	// MaxLag is how far behind a standby may be that is read.
	MaxLag = 10 * time.Second
	// maxCallers bounds how many callers' changes are remembered.
	maxCallers = 10_000
	// unknown is a floor until the primary says how far it is.
	unknown = math.MaxInt64
)

var queries = dbgen.New()

// Replica is a standby of a primary. Its methods may be called from any goroutine, and of
// nil, which is never read.
type Replica struct {
	primary, standby *pgxpool.Pool
	log              *slog.Logger

	mu sync.Mutex
	// trouble is why it is not read; nil if it is.
	trouble  error
	identity *dbgen.ServerIdentityRow // once it is known to be right
	replayed int64
	lag      time.Duration
	// written is how far the primary was, when: the newest that was replayed, and later ones.
	written []sample
	// wrote is how far the primary was after a caller's last change, and floor after those
	// of callers who are not remembered.
	wrote map[string]int64
	floor int64
	// missed counts changes behind which the primary did not say how far it was.
	missed int
}

type sample struct {
	at       time.Time
	position int64
}

var errNotAsked = errors.New("it has not been asked yet")

// New returns the replica behind the pool standby. It is not read before Run has asked.
func New(primary, standby *pgxpool.Pool, log *slog.Logger) *Replica {
	return &Replica{primary: primary, standby: standby, log: log, trouble: errNotAsked, wrote: map[string]int64{}}
}

// Run asks how far the two are until ctx ends.
func (r *Replica) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		r.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ask finds out whether the standby can be read.
func (r *Replica) ask(ctx context.Context) {
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r.mu.Lock()
	missed := r.missed
	r.mu.Unlock()
	now := time.Now()
	// The primary first: its answer is then no newer than the standby's. Without it the
	// standby is as good as it was.
	written, primaryAway := queries.ServerPosition(asked, r.primary)
	err := r.identify(asked)
	var s *dbgen.ServerReplayedRow
	if err == nil {
		s, err = queries.ServerReplayed(asked, r.standby)
	}
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if primaryAway == nil {
			r.written = append(r.written, sample{now, written})
			if r.floor == unknown && r.missed == missed { // or the answer may be older than the change
				r.floor = written
			}
		}
		err = r.judge(s, now)
	}
	r.is(err)
}

// identify sees once that the standby is one of this primary, and the same database.
func (r *Replica) identify(ctx context.Context) error {
	if r.identity != nil {
		return nil
	}
	primary, err := queries.ServerIdentity(ctx, r.primary)
	if err != nil {
		return fmt.Errorf("the primary cannot be compared with it: %w", err)
	}
	standby, err := queries.ServerIdentity(ctx, r.standby)
	if err != nil {
		return err
	}
	if *primary != *standby {
		return errors.New("it is not a standby of this database's server, or another database of it")
	}
	r.identity = primary
	return nil
}

// judge takes what the standby said.
func (r *Replica) judge(s *dbgen.ServerReplayedRow, now time.Time) error {
	if !s.Standby {
		return errors.New("it is no standby, but a primary")
	}
	r.replayed = s.Position
	for len(r.written) > 1 && r.written[1].position <= r.replayed {
		r.written = r.written[1:]
	}
	r.lag = 0
	if n := len(r.written); n > 0 && r.written[n-1].position > r.replayed {
		r.lag = now.Sub(r.written[0].at)
	}
	const most = 1000 // of a standby that is stuck, the first and the last tell enough
	if len(r.written) > most {
		r.written = append(r.written[:1:1], r.written[most/2:]...)
	}
	if r.lag > MaxLag {
		return fmt.Errorf("it is more than %v behind", MaxLag)
	}
	return nil
}

// is notes whether it can be read, and logs a change.
func (r *Replica) is(trouble error) {
	before := r.trouble
	r.trouble = trouble
	switch {
	case trouble != nil && (before == nil || errors.Is(before, errNotAsked)):
		r.log.Warn("the replica is not read; the primary is, instead", "error", trouble)
	case trouble == nil && before != nil:
		r.log.Info("the replica is read")
	}
}

// Fresh reports whether the standby can be read, for a caller: it has all that they
// changed.
func (r *Replica) Fresh(caller string) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble != nil {
		return false
	}
	needs := max(r.wrote[caller], r.floor)
	if needs <= r.replayed {
		delete(r.wrote, caller)
	}
	return needs <= r.replayed
}

// Wrote notes that a caller has changed something just now.
func (r *Replica) Wrote(ctx context.Context, caller string) {
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	position, err := queries.ServerPosition(ctx, r.primary)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.floor = unknown
		r.missed++
	case len(r.wrote) >= maxCallers:
		for _, p := range r.wrote {
			r.floor = max(r.floor, p)
		}
		clear(r.wrote)
		fallthrough
	default:
		r.wrote[caller] = position
	}
}

// Failed notes that the standby did not answer somebody. It is not read before it has said
// again how far it is.
func (r *Replica) Failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.is(err)
}

// State is whether it is read, and how far it is behind, which is known to a second.
func (r *Replica) State() (lag time.Duration, read bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lag, r.trouble == nil
}
