package check

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// never is a time that did not come.
const never = math.MaxInt64

// transaction is what is known of one.
type transaction struct {
	journal.Intent

	outcome string
	// ended is when its outcome was known; never, if its commit was not answered.
	ended int64
	// stored says that the database has it at the end.
	stored bool
}

// event is one that was meant to be written.
type event struct {
	journal.Event

	tx    *transaction
	place int // within the transaction
}

// request is one that arrived.
type request struct {
	journal.Start

	ended  int64
	how    string // "" if its receiver was killed
	status int
}

// succeeded reports whether the whole of a 2xx answer was written.
func (r *request) succeeded() bool { return r.how == journal.Answered && r.status/100 == 2 }

// subscription is an endpoint and all that arrived there.
type subscription struct {
	journal.Subscription

	secrets  []string
	changes  []journal.Change
	requests []*request
	states   map[string]string // at the end, by event
	deleted  int64             // when deleting it began; never
}

// evidence is all that the journals say.
type evidence struct {
	run           journal.Run
	transactions  map[string]*transaction
	events        map[string]*event
	subscriptions map[string]*subscription // by path
	faults        []journal.Fault
	secrets       []string
}

// gather reads the journals of a run.
func gather(dir string) (*evidence, error) {
	e := &evidence{transactions: map[string]*transaction{}, events: map[string]*event{}, subscriptions: map[string]*subscription{}}
	type arrival struct {
		file   string
		number int64
	}
	requests := map[arrival]*request{}
	var states []*journal.State
	var commits []string
	err := journal.Read(dir, func(file string, l journal.Line) error {
		switch {
		case l.Run != nil:
			e.run = *l.Run
		case l.Subscription != nil:
			s := e.subscription(l.Subscription.Path)
			s.Subscription = *l.Subscription
		case l.Secret != nil:
			s := e.subscription(l.Secret.Path)
			s.secrets = append(s.secrets, l.Secret.Secret)
			e.secrets = append(e.secrets, l.Secret.Secret)
		case l.Change != nil:
			s := e.subscription(l.Change.Path)
			s.changes = append(s.changes, *l.Change)
			if l.Change.What == journal.Delete {
				s.deleted = l.Change.Began
			}
		case l.Fault != nil:
			e.faults = append(e.faults, *l.Fault)
		case l.Intent != nil:
			t := e.transaction(l.Intent.Tx)
			t.Intent = *l.Intent
			for i, x := range l.Intent.Events {
				e.events[x.ID] = &event{Event: x, tx: t, place: i}
			}
		case l.Outcome != nil:
			t := e.transaction(l.Outcome.Tx)
			if t.outcome = l.Outcome.Outcome; t.outcome == journal.Committed {
				t.ended = l.Outcome.At
			}
		case l.Start != nil:
			requests[arrival{file, l.Start.Number}] = &request{Start: *l.Start, ended: never}
		case l.End != nil:
			if r := requests[arrival{file, l.End.Number}]; r != nil {
				if r.status = l.End.Status; l.End.How != journal.Begun {
					r.ended, r.how = l.End.At, l.End.How
				}
			}
		case l.Commit != nil:
			commits = append(commits, l.Commit.Tx)
		case l.State != nil:
			states = append(states, l.State)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, tx := range commits {
		e.transaction(tx).stored = true
	}
	for _, s := range states {
		e.subscription(s.Path).states[s.Event] = s.State
	}
	for _, r := range requests {
		s := e.subscription(r.Path)
		s.requests = append(s.requests, r)
	}
	for path, s := range e.subscriptions {
		if s.Path == "" {
			// Creating it was not answered, so nobody knows its secret.
			delete(e.subscriptions, path)
			continue
		}
		for _, r := range s.requests {
			if r.how == "" {
				r.ended = e.killed(s.Receiver, r.At)
			}
		}
		slices.SortFunc(s.requests, func(a, b *request) int { return cmp.Compare(a.At, b.At) })
		slices.SortFunc(s.changes, func(a, b journal.Change) int { return cmp.Compare(a.Began, b.Began) })
	}
	return e, nil
}

func (e *evidence) subscription(path string) *subscription {
	s := e.subscriptions[path]
	if s == nil {
		s = &subscription{states: map[string]string{}, deleted: never}
		e.subscriptions[path] = s
	}
	return s
}

func (e *evidence) transaction(tx string) *transaction {
	t := e.transactions[tx]
	if t == nil {
		t = &transaction{ended: never}
		e.transactions[tx] = t
	}
	return t
}

// committed reports whether a transaction was, as its producer was told, or, if it was
// not told, as the database has it.
func (t *transaction) committed() bool {
	return t.outcome == journal.Committed || t.outcome != journal.RolledBack && t.stored
}

// wants reports whether a subscription gets events of a type.
func (s *subscription) wants(eventType string) bool {
	return slices.ContainsFunc(s.Types, func(p string) bool {
		prefix, all := strings.CutSuffix(p, "*")
		return p == eventType || all && strings.HasPrefix(eventType, prefix)
	})
}

// owed reports whether an event must reach a subscription: it was there before the
// transaction began.
func (s *subscription) owed(x *event) bool {
	return s.wants(x.Type) && s.Ended < x.tx.Began && x.tx.committed()
}

// may reports whether an event may reach a subscription: it was there when the event was
// written, which a relay may do long after the transaction that staged it.
func (s *subscription) may(x *event) bool {
	return s.wants(x.Type) && x.tx.committed() && (s.Began <= x.tx.ended || x.Route == journal.Staged)
}
