package outbox

import (
	"context"
	"errors"
	"sync"
)

// marker lets parts that have something to mark at the same time do it in one
// statement: while one is on its way, the next gathers.
type marker struct {
	mark func(context.Context, ...Claim) error

	mu      sync.Mutex
	waiting []*markRequest
	busy    bool
}

type markRequest struct {
	claims []Claim
	done   chan error
}

// markMax is the most messages of one statement, but for what one part brings.
const markMax = 1000

// do marks claims as published, and returns what that means for them alone.
func (m *marker) do(ctx context.Context, claims []Claim) error {
	request := &markRequest{claims: claims, done: make(chan error, 1)}
	m.mu.Lock()
	m.waiting = append(m.waiting, request)
	leads := !m.busy
	m.busy = true
	m.mu.Unlock()
	if leads {
		m.round(ctx)
	}
	return <-request.done
}

// round marks what is waiting, and has somebody who came meanwhile lead the next.
func (m *marker) round(ctx context.Context) {
	m.mu.Lock()
	var round []*markRequest
	var claims []Claim
	for len(m.waiting) > 0 && (len(round) == 0 || len(claims)+len(m.waiting[0].claims) <= markMax) {
		round = append(round, m.waiting[0])
		claims = append(claims, m.waiting[0].claims...)
		m.waiting = m.waiting[1:]
	}
	m.mu.Unlock()

	err := m.mark(ctx, claims...)
	lost := map[claimKey]bool{}
	for _, c := range lostOf(err) {
		lost[claimKey{c.Queue, c.Seq, c.Fence}] = true
	}
	for _, request := range round {
		if !errors.Is(err, ErrLeaseLost) {
			request.done <- err
			continue
		}
		var mine []Claim
		for _, c := range request.claims {
			if lost[claimKey{c.Queue, c.Seq, c.Fence}] {
				mine = append(mine, c)
			}
		}
		if mine == nil {
			request.done <- nil
		} else {
			request.done <- &LeaseLostError{mine}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		m.busy = false
		return
	}
	go func() { //nolint:gosec // what is published is to be marked also when the relay is told to stop
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		m.round(ctx)
	}()
}
