package interleave

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Explorer tries all orders.
type Explorer struct {
	Actors []*Actor
	// Observer is a session beside the actors'.
	Observer *pgx.Conn
	// Gated: the actors stop at gates too.
	Gated bool
	// Begin prepares a run, and returns what each actor does in it, and what has to be
	// so after each step and at the end (ended).
	Begin func(ctx context.Context) (scripts []func() error, check func(ended bool) error, err error)
}

// Violation is an order of steps after which something was not as it has to be.
type Violation struct {
	Steps []string
	Err   error
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%v\nafter:\n\t%s", v.Err, strings.Join(v.Steps, "\n\t"))
}

// choice is a point at which several actors could go on.
type choice struct {
	enabled []int
	taken   int // of enabled
}

// Explore tries the orders one after another and returns how many there were. The first
// in which something goes wrong ends it, with a *Violation.
func (e *Explorer) Explore(ctx context.Context) (orders int, err error) {
	if e.Gated {
		for _, a := range e.Actors {
			if err := shut(ctx, e.Observer, a); err != nil {
				return 0, err
			}
		}
	}
	var path []choice
	for {
		if path, err = e.run(ctx, path); err != nil {
			return orders, err
		}
		orders++
		for len(path) > 0 && path[len(path)-1].taken == len(path[len(path)-1].enabled)-1 {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return orders, nil
		}
		path[len(path)-1].taken++
	}
}

// run takes one order: along path, and then whoever comes first. It returns all choices.
func (e *Explorer) run(ctx context.Context, path []choice) ([]choice, error) {
	scripts, check, err := e.Begin(ctx)
	if err != nil {
		return nil, err
	}
	var steps []string
	fail := func(err error) ([]choice, error) { return nil, &Violation{steps, err} }
	moved := make(chan struct{}, 1)
	for i, a := range e.Actors {
		a.start(moved, scripts[i])
	}
	defer func() {
		if err == nil {
			return
		}
		for _, a := range e.Actors { // whatever they do now, they end
			a.let()
		}
	}()
	for depth := 0; ; depth++ {
		places, settled, settleErr := e.settle(ctx, moved)
		if settleErr != nil {
			err = settleErr
			return nil, err
		}
		var enabled []int
		ended := true
		for i, a := range e.Actors {
			_, done, actorErr := a.state()
			if actorErr != nil {
				err = actorErr
				return fail(fmt.Errorf("actor %d: %w", i+1, actorErr))
			}
			ended = ended && done
			if places[i] != "" {
				enabled = append(enabled, i)
			}
		}
		if err = check(ended); err != nil {
			return fail(err)
		}
		if ended {
			return path[:depth], nil
		}
		if len(enabled) == 0 || !settled {
			err = fmt.Errorf("everybody waits: %v", places)
			return fail(err)
		}
		if depth == len(path) {
			path = append(path, choice{enabled: enabled})
		}
		now := path[depth]
		if fmt.Sprint(now.enabled) != fmt.Sprint(enabled) {
			err = fmt.Errorf("another run could go on with %v here, and this one with %v", now.enabled, enabled)
			return fail(err)
		}
		i := enabled[now.taken]
		steps = append(steps, fmt.Sprintf("%d %s", i+1, places[i]))
		if places[i] == atGate {
			err = open(ctx, e.Observer, e.Actors[i])
		} else {
			e.Actors[i].step()
		}
		if err != nil {
			return nil, err
		}
	}
}

const atGate = "(through a gate)"

// settle waits until no actor moves: each has stopped before a step or at a gate, waits
// for a lock of one that has, or has ended. It returns where those are that can go on.
// PostgreSQL is asked only if for a moment none has said that it stopped.
func (e *Explorer) settle(ctx context.Context, moved <-chan struct{}) (places []string, settled bool, err error) {
	moment := time.NewTicker(time.Millisecond)
	defer moment.Stop()
	for {
		places = make([]string, len(e.Actors))
		var moving []int
		for i, a := range e.Actors {
			at, done, _ := a.state()
			if places[i] = at; at == "" && !done {
				moving = append(moving, i)
			}
		}
		if len(moving) == 0 {
			return places, true, nil
		}
		select {
		case <-moved:
			continue
		case <-moment.C:
		}
		waits, err := e.waiting(ctx, moving)
		if err != nil {
			return nil, false, err
		}
		still := true
		for n, i := range moving {
			at, done, _ := e.Actors[i].state()
			still = still && waits[n] != "" && at == "" && !done
			if waits[n] == atGate {
				places[i] = atGate
			}
		}
		if still {
			return places, true, nil
		}
	}
}

// waiting tells of each of some actors whether its session waits for a lock of another's,
// or of the observer's, which shuts the gates: "" if not. Whoever waits for a session of
// somebody else (a commit that notifies does, briefly) will move by itself.
func (e *Explorer) waiting(ctx context.Context, actors []int) ([]string, error) {
	pids, all := make([]int64, len(actors)), make([]int64, len(e.Actors))
	for i, a := range e.Actors {
		all[i] = a.pid.Load()
	}
	for n, i := range actors {
		pids[n] = all[i]
	}
	rows, err := e.Observer.Query(ctx, `SELECT CASE WHEN pg_backend_pid() = ANY (b.pids) THEN 'gate'
		            WHEN cardinality(b.pids) > 0 AND b.pids::bigint[] <@ $2::bigint[] THEN 'lock' ELSE '' END
		FROM unnest($1::bigint[]) WITH ORDINALITY p (pid, n) CROSS JOIN LATERAL (SELECT pg_blocking_pids(p.pid::integer) AS pids) b ORDER BY p.n`, pids, all)
	if err != nil {
		return nil, err
	}
	waits, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for n := range waits {
		if waits[n] == "gate" {
			waits[n] = atGate
		}
	}
	return waits, err
}
